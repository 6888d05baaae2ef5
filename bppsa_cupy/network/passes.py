"""One forward pass of a network: how it begins, what its backward pass needs, and what that one ran."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import ArgumentError, PassError, ShapeError
from bppsa_cupy.layers import Context
from bppsa_cupy.layers.recurrent import RecurrentContext
from bppsa_cupy.layers.stack import ResidualContext, walk
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.parameters import ParameterSet
from bppsa_cupy.plan import SCHEDULES
from bppsa_cupy.timescan.lengths import Resets, take_lengths

METHODS = ("auto", "bp", *SCHEDULES)


@dataclass
class Pass:
    """The arrays of one forward pass. A network may have several passes at a time.

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
        Gradients with respect to layer outputs in the last backward pass, by layer index: views of buffers.
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
        """Drop the gradients with respect to layer outputs, in residual blocks too."""
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
        """Gradients with respect to the initial states, in the form of `states`.

        Empty before a backward pass.
        """
        return self._saved("state_gradients")

    @property
    def forward_ways(self) -> tuple[str, ...]:
        """Method and reason of each recurrent layer's forward pass: one per inner layer and direction."""
        return self.ways("forward_ways")

    def ways(self, name: str) -> tuple[str, ...]:
        """The lines "forward_ways" or "backward_ways" of all recurrent layers, in residual blocks too."""
        return tuple(
            f"{place.path} {type(place.layer).__name__} {line}"
            for place in walk(self.architecture, self.layers)
            if isinstance(place.ctx, RecurrentContext)
            for line in getattr(place.ctx, name)
        )

    def _saved(self, name: str) -> dict[int, Any]:
        return {index: ctx.saved[name] for index, ctx in self.recurrent.items() if name in ctx.saved}


@dataclass(frozen=True)
class BackwardReport:
    """Describes what a backward pass ran.

    Attributes
    ----------
    method : str
        "bp", "linear", "blelloch" or "hybrid".
    schedules : tuple of str
        One schedule per run of layers, such as "hybrid of 2 levels: 7 mv and 3 mm in 6 levels"; empty for
        "bp".
    current : weak reference to Pass, or None
        The pass. None if this rank had no samples.
    """

    method: str
    schedules: tuple[str, ...] = ()
    current: weakref.ref[Pass] | None = field(default=None, repr=False)

    @property
    def backward_ways(self) -> tuple[str, ...]:
        """Method and reason per inner recurrent layer and direction.

        For example "0 RNN l0: chunked, 300 chunks of 100 (measured on cuda)". Empty once the pass is deleted
        or used for another forward pass.
        """
        current = None if self.current is None else self.current()
        return () if current is None else current.ways("backward_ways")


def own_pass(candidate: Pass, parameters: ParameterSet) -> Pass:
    """`latest`, which must be a pass of the network of these parameters. Raises PassError."""
    if candidate.parameters is not parameters:
        raise PassError("the pass belongs to another network: use a pass of this network")
    return candidate


def current_pass(latest: Pass | None, parameters: ParameterSet, caller: str) -> Pass:
    """Return `latest`, a finished pass of these parameters at their present version, or raise PassError."""
    if latest is None:
        raise PassError(f"{caller} was called before forward: run net.forward(x) first")
    if latest.parameters is not parameters:
        own_pass(latest, parameters)
    if latest.output is None:
        raise PassError(
            f"the pass is incomplete, because the latest call of forward failed: run net.forward(x) again "
            f"before {caller}"
        )
    if not latest.keeps:
        raise PassError(
            f"the forward pass had keep=False: run net.forward(x) without keep=False before {caller}"
        )
    if latest.version != parameters.version:
        raise PassError(
            f"the parameters have changed since the forward pass, from version {latest.version} to "
            f"{parameters.version}: run net.forward(x) again before {caller}"
        )
    return latest


def checked_gradient(current: Pass, gradient: Any) -> Array:
    """The gradient with respect to the output, on the device. Raises ShapeError."""
    array, expected = current.parameters.device.asarray(gradient), current.output.shape
    if array.shape != expected or array.dtype != current.parameters.dtype:
        raise ShapeError(
            f"backward got a gradient of {array.dtype} and shape {tuple(array.shape)}: pass "
            f"{current.dtype} of the output's shape {tuple(expected)}"
        )
    return array


def begin(current: Pass, x: Any, lengths: Any, states: Any, keep: bool, resets: Any = None) -> Array:
    """Start a pass and return the batch on the device. See `Sequential.forward`."""
    batch = take_input(current.architecture, current.device, current.dtype, x)
    current.parameters.apply_masks()
    current.output, current.keeps = None, keep  # no output until the pass has come to its end
    for ctx in current.layers:
        ctx.keeps = keep
    current.input, current.version = batch, current.parameters.version
    current.forget_gradients()
    if lengths is not None or resets is not None:
        name = "resets" if lengths is None else "lengths"
        if lengths is not None and resets is not None:
            raise ArgumentError("forward got lengths and resets: pass only one of them")
        if not current.architecture.all_recurrent:
            raise ArgumentError(f"forward got {name}, but no layer of the network is recurrent: omit them")
    if lengths is not None:
        lengths = take_lengths(current.device, lengths, current.batch, batch.shape[1])
    if resets is not None:
        for layer in current.architecture.all_recurrent:
            layer.check_resets()
        resets = Resets(current.device, resets, current.batch, batch.shape[1])
    initial = checked_states(current, states, "the initial state")
    for ctx in current.layers:
        ctx.lengths, ctx.resets = lengths, resets
    for index, recurrent in current.recurrent.items():
        recurrent.initial, recurrent.final_gradient = initial.get(index), None
    return batch


def take_input(architecture: Architecture, device: Device, dtype: np.dtype, x: Any) -> Array:
    """Return a batch on the device. Lists are converted. Raises ShapeError for another shape or dtype."""
    array = device.asarray(x, dtype if isinstance(x, (list, tuple)) else None)
    architecture.check_input(array.shape)
    if array.dtype != dtype:
        raise ShapeError(f"the network got input of {array.dtype}: pass x.astype({dtype.name!r})")
    return array


def through(current: Pass, x: Array, layers: range, training: bool, random_state: Mapping[str, int]) -> Array:
    """The output of `layers`, one after another, for `x`, the input of the first; fills their contexts."""
    architecture = current.architecture
    return architecture.forward(current.layers, x, training, partial(draw, random_state), layers)


def draw(random_state: Mapping[str, int], index: int) -> tuple[int, int, int]:
    """Return the seed of the random numbers of layer `index`: `Context.draw`."""
    return random_state["key"], index, random_state["passes"]


# ---- sequences: where samples end, and states of recurrent layers ----


def checked_states(current: Pass, states: Any, name: str) -> dict[int, tuple[Array, ...]]:
    """Return the states `name` by layer index, as arrays on the device. Raises ArgumentError, ShapeError."""
    if states is None:
        return {}
    recurrent = current.architecture.recurrent
    if not isinstance(states, Mapping):
        if len(recurrent) != 1:
            keys = ", ".join(f"{index}: ..." for index in recurrent)
            raise ArgumentError(
                f"{name} is a single {type(states).__name__}, but the network has {len(recurrent)} recurrent "
                f"layers: pass a dict by layer index, {{{keys}}}"
            )
        states = dict.fromkeys(recurrent, states)
    checked = {}
    for index, state in states.items():
        if index not in recurrent:
            raise ArgumentError(
                f"{name} has an entry for layer {index!r}: pass entries only for the recurrent layers, "
                f"{list(recurrent)}"
            )
        checked[index] = recurrent[index].check_states(
            state, current.batch, current.dtype, current.device.asarray, name
        )
    return checked
