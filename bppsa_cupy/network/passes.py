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
    """Activations and masks of one forward pass; several of one network may be alive at once.

    parameters        those of the network that the pass belongs to; device and dtype are theirs
    architecture      the network's at this pass, with the masks it used
    layers            each layer's context
    input, output     (B, ...); the output is None until the pass has come to its end
    version           of the parameters the pass used
    keeps             whether it keeps what a way back needs
    output_gradients  by layer index, the gradient by that layer's output in the last backward pass;
                      views of buffers, forgotten when the network goes back through another pass
    stream            where its latest work was launched: work on another stream waits for it
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
        """The shape (B, ...) of this pass's input of layer `index`, or of the output after the last one."""
        shape = self.architecture.shapes[index]
        return self.batch, *(self.input.shape[1] if size is None else size for size in shape)

    def forget_gradients(self) -> None:
        """Drop the gradients by the layers' outputs, inside of residual blocks too."""
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
        """Each recurrent layer's state after the last step, by the layer's index: (num_layers D, B, H), for
        an LSTM the pair of h and c. Buffers that the pass's next forward writes over."""
        return self._saved("states")

    @property
    def state_gradients(self) -> dict[int, Any]:
        """The gradients by the states before the first step, likewise; empty before a backward pass."""
        return self._saved("state_gradients")

    @property
    def forward_ways(self) -> tuple[str, ...]:
        """How each recurrent layer went forward over time, and why: one an inner layer and direction."""
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
