"""One forward pass of a network: how it begins, what its backward pass needs, and what that one ran."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import ArgumentError, PassError, ShapeError
from bppsa_cupy.layers import Context, Layer, Recurrent
from bppsa_cupy.layers.recurrent import RecurrentContext
from bppsa_cupy.layers.residual import ResidualContext, walk
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.parameters import ParameterSet
from bppsa_cupy.plan import SCHEDULES
from bppsa_cupy.timescan.lengths import take_lengths
from bppsa_cupy.timescan.resets import Resets

METHODS = ("auto", "bp", *SCHEDULES)


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


@dataclass(frozen=True)
class BackwardReport:
    """Describes what a backward pass ran.

    Attributes
    ----------
    method : str
        "bp", "linear", "blelloch" or "hybrid".
    requested : str
        The requested method.
    reason : str
        Why this method ran.
    schedules : tuple of str
        One schedule per run of layers, such as "hybrid of 2 levels: 7 mv and 3 mm in 6 levels"; empty for
        "bp".
    launches : dict of str to int
        Kernel launches by name.
    device : str
        Name of the device.
    backward_ways : tuple of str
        Method and reason per inner recurrent layer and direction, such as "0 RNN l0: chunked, 300 chunks of
        100 (measured on cuda)".
    """

    method: str
    requested: str
    reason: str
    schedules: tuple[str, ...]
    launches: dict[str, int]
    device: str
    backward_ways: tuple[str, ...] = ()

    @property
    def launched(self) -> int:
        """The number of kernel launches."""
        return sum(self.launches.values())


def own_pass(given: Pass, parameters: ParameterSet) -> Pass:
    """`given`, which must be a pass of the network of these parameters. Raises PassError."""
    if given.parameters is not parameters:
        raise PassError("the pass belongs to another network: use a pass of this network")
    return given


def current_pass(given: Pass | None, parameters: ParameterSet, caller: str, *, stale: bool = False) -> Pass:
    """`given`, which must be a pass of these parameters that came to its end, at their present version unless
    it may be `stale`. Raises PassError."""
    if given is None:
        raise PassError(f"{caller} was called before forward: run net.forward(x) first")
    if given.parameters is not parameters:
        own_pass(given, parameters)
    if given.output is None:
        raise PassError(
            f"the pass is incomplete, because the latest call of forward failed: run net.forward(x) again "
            f"before {caller}"
        )
    if not given.keeps:
        raise PassError(
            f"the forward pass had keep=False: run net.forward(x) without keep=False before {caller}"
        )
    if given.version != parameters.version and not stale:
        raise PassError(
            f"the parameters have changed since the forward pass, from version {given.version} to "
            f"{parameters.version}: run net.forward(x) again before {caller}"
        )
    return given


def checked_gradient(current: Pass, given: Any) -> Array:
    """The gradient with respect to the output, on the device. Raises ShapeError."""
    array, expected = current.parameters.device.asarray(given), current.output.shape
    if array.shape != expected or array.dtype != current.parameters.dtype:
        raise ShapeError(
            f"backward got a gradient of {array.dtype} and shape {tuple(array.shape)}: pass "
            f"{current.dtype} of the output's shape {tuple(expected)}"
        )
    return array


def begin(current: Pass, x: Any, lengths: Any, states: Any, keep: bool, resets: Any = None) -> Array:
    """Take a batch into a pass; it is on the device then. Arguments and errors are those of
    `Sequential.forward`."""
    architecture = current.architecture
    given = take_input("the network", current.device, current.dtype, x, architecture.check_input)
    current.parameters.apply_masks()
    current.output, current.keeps = None, keep  # no output until the pass has come to its end
    for ctx in current.layers:
        ctx.keeps = keep
    current.input, current.version = given, current.parameters.version
    current.forget_gradients()
    set_sequences(current, lengths, states, resets)
    return given


def take_input(
    owner: str,
    device: Device,
    dtype: np.dtype,
    x: Any,
    check: Callable[[tuple[int, ...]], object],
) -> Array:
    """A batch on the device, of the network's dtype; lists are converted. Raises ShapeError.

    check  raises ShapeError unless a batch may have a shape
    """
    given = device.asarray(x, dtype if isinstance(x, (list, tuple)) else None)
    check(given.shape)
    if given.dtype != dtype:
        raise ShapeError(f"{owner} got input of {given.dtype}: pass x.astype({dtype.name!r})")
    return given


def through(current: Pass, x: Array, layers: range, training: bool, random_state: Mapping[str, int]) -> Array:
    """The output of `layers`, one after another, for `x`, the input of the first; fills their contexts."""
    architecture = current.architecture
    return architecture.forward(current.layers, x, training, partial(draw, random_state), layers)


def draw(random_state: Mapping[str, int], index: int) -> tuple[int, int, int]:
    """Return the seed of the random numbers of layer `index`: `Context.draw`."""
    return random_state["key"], index, random_state["passes"]


# ---- sequences: where samples end, and states of recurrent layers ----


def set_sequences(current: Pass, lengths: Any, states: Any, resets: Any) -> None:
    """Hand lengths, resets and initial states to the recurrent layers of a pass. Raises ShapeError."""
    taken, cuts = None, None
    if lengths is not None or resets is not None:
        what = "resets" if lengths is None else "lengths"
        if lengths is not None and resets is not None:
            raise ArgumentError("forward got lengths and resets: pass only one of them")
        if not any(layer.is_recurrent() for layer in current.architecture.layers):
            raise ArgumentError(f"forward got {what}, but no layer of the network is recurrent: omit them")
    if lengths is not None:
        taken = take_lengths(current.device, lengths, current.batch, current.input.shape[1])
    if resets is not None:
        for place in walk(current.architecture):
            if isinstance(place.layer, Recurrent):
                place.layer.check_resets()
        cuts = Resets(current.device, resets, current.batch, current.input.shape[1])
    initial = checked_states(current, states, "the initial state")
    for ctx in current.layers:
        ctx.lengths, ctx.resets = taken, cuts
    for index, ctx in current.recurrent.items():
        ctx.initial, ctx.final_gradient = initial.get(index), None


def checked_states(current: Pass, given: Any, what: str) -> dict[int, tuple[Array, ...]]:
    """Return the given states by layer index, as arrays on the device."""
    if given is None:
        return {}
    checked, recurrent = {}, current.architecture.recurrent
    for index, state in _by_layer(recurrent, given, what).items():
        if index not in recurrent:
            raise ArgumentError(
                f"{what} has an entry for layer {index!r}: pass entries only for the recurrent layers, "
                f"{list(recurrent)}"
            )
        checked[index] = recurrent[index].check_states(
            state, current.batch, current.dtype, current.device.asarray, what
        )
    return checked


def _by_layer(recurrent: Mapping[int, Recurrent], given: Any, what: str) -> Mapping[int, Any]:
    """`given` by the layer's index; a state on its own is that of the only recurrent layer."""
    if isinstance(given, Mapping):
        return given
    if len(recurrent) == 1:
        return dict.fromkeys(recurrent, given)
    if not recurrent:
        raise ArgumentError(f"got {what}, but no layer of the network is recurrent: omit it")
    keys = ", ".join(f"{index}: ..." for index in recurrent)
    raise ArgumentError(
        f"{what} is a single {type(given).__name__}, but the network has {len(recurrent)} recurrent "
        f"layers: pass a dict by layer index, {{{keys}}}"
    )
