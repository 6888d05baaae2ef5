"""One forward pass of a network: what its backward pass needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import PassError
from bppsa_cupy.layers import Context, Layer
from bppsa_cupy.layers.recurrent import RecurrentContext
from bppsa_cupy.layers.residual import ResidualContext, walk
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.parameters import ParameterSet


@dataclass
class Pass:
    """One forward pass; several of one network may exist at the same time.

    Attributes
    ----------
    parameters : ParameterSet
        The parameters of the network that the pass belongs to.
    architecture : Architecture
        The layers with the masks of this pass.
    layers : list of Context
        The context of each layer.
    input, output : array, (B, ...)
        The output is None until the pass ends.
    version : int
        Version of the parameters that the pass used.
    keeps : bool
        Whether the pass stores what a backward pass needs.
    output_gradients : dict of int to array
        Gradients by layer outputs in the last backward pass, by layer index: views of buffers.
    stream : object
        The stream of the latest work; work on another stream waits for it.
    """

    parameters: ParameterSet
    architecture: Architecture
    layers: list[Context]
    input: Array = None
    output: Array = None
    version: int = -1
    keeps: bool = True
    output_gradients: dict[int, Array] = field(default_factory=dict)
    stream: Any = None

    @property
    def device(self) -> Device:
        return self.parameters.device

    @property
    def dtype(self) -> np.dtype:
        return self.parameters.dtype

    @property
    def batch(self) -> int:
        return int(self.input.shape[0])

    def shape_at(self, index: int) -> tuple[int, ...]:
        """The shape (B, ...) of the input of layer `index`, or of the output after the last layer."""
        shape = self.architecture.shapes[index]
        return self.batch, *(self.input.shape[1] if size is None else size for size in shape)

    def forget_gradients(self) -> None:
        """Drop the gradients by layer outputs, in residual blocks too."""
        self.output_gradients.clear()
        if ResidualContext in map(type, self.layers):
            for place in walk(self.architecture, self.layers):
                if isinstance(place.ctx, ResidualContext):
                    place.ctx.by_outputs.clear()

    @property
    def recurrent(self) -> dict[int, RecurrentContext]:
        """The contexts of recurrent layers, by index."""
        return {index: ctx for index, ctx in enumerate(self.layers) if isinstance(ctx, RecurrentContext)}

    @property
    def states(self) -> dict[int, Any]:
        """Final states of recurrent layers by layer index: (num_layers D, B, H), a pair (h, c) for an LSTM.

        The next forward pass into this pass overwrites them.
        """
        return self._saved("states")

    @property
    def state_gradients(self) -> dict[int, Any]:
        """Gradients by the initial states, in the form of `states`; empty before a backward pass."""
        return self._saved("state_gradients")

    @property
    def forward_ways(self) -> tuple[str, ...]:
        """Method and reason of each recurrent layer's forward pass: one per inner layer and direction."""
        return tuple(line for walker in self.walkers() for line in walker.labelled(walker.ctx.forward_ways))

    def walkers(self) -> list[Walker]:
        """The recurrent layers, those inside of residual blocks among them."""
        found = []
        if ResidualContext in map(type, self.layers):
            for place in walk(self.architecture, self.layers):
                if isinstance(place.ctx, RecurrentContext):
                    found.append(Walker(place.path, place.layer, place.ctx))
        else:
            for index, ctx in enumerate(self.layers):
                if isinstance(ctx, RecurrentContext):
                    found.append(Walker(str(index), self.architecture.layers[index], ctx))
        return found

    def _saved(self, name: str) -> dict[int, Any]:
        return {index: ctx.saved[name] for index, ctx in self.recurrent.items() if name in ctx.saved}


class Walker(NamedTuple):
    """A recurrent layer at one pass, by its place: "3.body.1"."""

    place: str
    layer: Layer
    ctx: RecurrentContext

    def labelled(self, ways: Iterable[str]) -> Iterator[str]:
        """Ways over time, with the layer they are of."""
        return (f"{self.place} {type(self.layer).__name__} {way}" for way in ways)


def own_pass(given: Pass, parameters: ParameterSet) -> Pass:
    """`given`, which must be a pass of the network of these parameters. Raises PassError."""
    if not isinstance(given, Pass):
        raise PassError(f"a {type(given).__name__} was given for a pass: it takes one, as net.last_pass")
    if given.parameters is not parameters:
        raise PassError("the pass belongs to another network: give one of this network's own")
    return given


def current_pass(given: Pass | None, parameters: ParameterSet, caller: str, *, stale: bool = False) -> Pass:
    """`given`, which must be a pass of these parameters that came to its end, at their present version unless
    it may be `stale`. Raises PassError."""
    if given is None:
        raise PassError(f"{caller} was called before forward: run net.forward(x) first")
    own_pass(given, parameters)
    if given.output is None:
        raise PassError(
            f"the pass was begun anew and did not come to its end: run net.forward(x) again before {caller}"
        )
    if not given.keeps:
        raise PassError(f"the pass was made with keep=False: run net.forward(x) without it before {caller}")
    if given.version != parameters.version and not stale:
        raise PassError(
            f"the pass used version {given.version} of the parameters, they are at version "
            f"{parameters.version}: run net.forward(x) again before {caller}"
        )
    return given
