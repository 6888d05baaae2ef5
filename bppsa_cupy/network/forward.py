"""The forward pass: a batch through layers, in order; and a step of sequences at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from bppsa_cupy.conversion import of_dtype, of_list
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Context, Recurrent
from bppsa_cupy.layers.recurrent import RecurrentContext
from bppsa_cupy.layers.residual import walk
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.timescan.lengths import take_lengths


def begin(current: Pass, x: Any, lengths: Any, states: Any, keep: bool) -> Array:
    """Take a batch into a pass; it is on the device then. Arguments and errors are those of
    `Sequential.forward`."""
    architecture = current.architecture
    of_indices = bool(architecture.layers) and architecture.layers[0].takes_indices
    given = take_input("the network", current.device, current.dtype, x, architecture.check_input, of_indices)
    current.parameters.apply_masks()
    current.output, current.keeps = None, keep  # no output until the pass has come to its end
    for ctx in current.layers:
        ctx.keeps = keep
    current.input, current.version = given, current.parameters.version
    current.forget_gradients()
    set_sequences(current, lengths, states)
    return given


def take_input(
    owner: str,
    device: Device,
    dtype: np.dtype,
    x: Any,
    check: Callable[[tuple[int, ...]], object],
    of_indices: bool = False,
) -> Array:
    """A batch on the device, of the network's dtype. A list, and an array of another dtype, are converted
    where nothing is lost, the latter with a warning the first time.

    check  raises ShapeError unless a batch may have a shape
    of_indices  whether integers are expected, and are taken without a word

    Raises ShapeError where a value would change.
    """
    given = device.asarray(of_list(x, dtype))
    check(given.shape)
    if given.dtype == dtype:
        return given
    if of_indices and given.dtype.kind in "iu":
        return given.astype(dtype)
    return of_dtype(owner, "input", given, dtype, f"convert the input, as x.astype({dtype.name!r})")


def through(current: Pass, x: Array, layers: range, training: bool, random_state: Mapping[str, int]) -> Array:
    """The output of `layers`, one after another, for `x`, the input of the first; fills their contexts."""
    architecture = current.architecture
    return architecture.forward(current.layers, x, training, partial(draw, random_state), layers)


def draw(random_state: Mapping[str, int], index: int) -> tuple[int, int, int]:
    """What the random numbers of layer `index` follow from: `Context.draw`."""
    return random_state["key"], index, random_state["passes"]


# ---- sequences: where samples end, and states of recurrent layers ----


def set_sequences(current: Pass, lengths: Any, states: Any) -> None:
    """Hand lengths and initial states to the recurrent layers of a pass. Raises ShapeError."""
    taken = None
    if lengths is not None:
        if not any(layer.is_recurrent() for layer in current.architecture.layers):
            raise ShapeError("lengths were given and no layer of the network is recurrent: leave them out")
        taken = take_lengths(current.device, lengths, current.batch, current.input.shape[1])
    initial = checked_states(current, states, "the initial state")
    for ctx in current.layers:
        ctx.lengths = taken
    for index, ctx in current.recurrent.items():
        ctx.initial, ctx.final_gradient = initial.get(index), None


def checked_states(current: Pass, given: Any, what: str) -> dict[int, tuple[Array, ...]]:
    """What was given of a state, by the layer's index, as arrays on the device."""
    if given is None:
        return {}
    checked, recurrent = {}, current.architecture.recurrent
    for index, state in _by_layer(recurrent, given, what).items():
        if not hasattr(index, "__index__"):
            raise ShapeError(
                f"{what} was given for {index!r}: layers go by their index, an integer, as in {{0: h}}"
            )
        if index not in recurrent:
            layers = current.architecture.layers
            layer = layers[index] if 0 <= index < len(layers) else None
            raise ShapeError(
                f"{what} was given for layer {index}, which is {layer!r}: recurrent layers alone have one"
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
        raise ShapeError(f"{what} was given and no layer of the network is recurrent: leave it out")
    keys = ", ".join(f"{index}: ..." for index in recurrent)
    raise ShapeError(
        f"{what} was given as one {type(given).__name__} for {len(recurrent)} recurrent layers: give it by "
        f"the layer's index, {{{keys}}}"
    )


class Steps:
    """A network that runs one time step per call, for generation.

    `net.steps()` creates it. Each call takes one input step (B, F) and returns its output. The states of all
    recurrent layers are kept for the next call.

    Raises
    ------
    ShapeError
        If a layer needs the whole sequence, or a call changes the batch size.

    Notes
    -----
    Steps run in evaluation mode with the present parameters. On the host their results are bit-identical to
    one serial pass.

    Examples
    --------
    >>> import numpy as np, bppsa_cupy as bp
    >>> net = bp.Sequential([bp.RNN(3, 5)], input_shape=(None, 3), device="host")
    >>> steps, x = net.steps(), np.ones((2, 7, 3), np.float32)
    >>> np.array_equal(np.stack([steps(x[:, t]) for t in range(7)], 1), net.forward(x))
    True
    """

    def __init__(self, whole: Architecture, new_context: Callable[[int, Architecture], Context]) -> None:
        shape = whole.input_shape
        if len(shape) != 2:
            raise ShapeError(f"steps takes a network over sequences (T, F), and this one takes {shape}")
        self._architecture = Architecture(whole.layers, (1, shape[1]), False)
        for place in walk(self._architecture):
            if not place.layer.steps_alone:
                raise ShapeError(
                    f"steps: layer {place.path}, {place.layer!r}, needs more than its state: it takes whole "
                    "sequences"
                )
        self._contexts = [new_context(index, self._architecture) for index in range(len(whole.layers))]
        self._device, self._dtype = self._contexts[0].device, self._contexts[0].dtype
        for ctx in self._contexts:
            ctx.training = False
        self._batch: int | None = None

    def __call__(self, x: Any) -> Array:
        """Return the output of one step.

        Parameters
        ----------
        x : array, (B, F)
            The input of the step.

        Returns
        -------
        array, (B, ...)
            A copy, on the device.
        """
        features = self._architecture.input_shape[1]

        def check(shape: tuple[int, ...]) -> None:
            if len(shape) != 2 or shape[1] != features or shape[0] != (self._batch or shape[0]):
                batch = "B" if self._batch is None else self._batch
                raise ShapeError(f"a step got input of shape {tuple(shape)}: it takes ({batch}, {features})")

        of_indices = self._architecture.layers[0].takes_indices
        given = take_input("the network", self._device, self._dtype, x, check, of_indices)
        self._batch = len(given)
        draws = partial(draw, {"key": 0, "passes": 0})
        with self._device.naming_memory:
            y = self._architecture.forward(self._contexts, given[:, None], False, draws)
            for place in walk(self._architecture, self._contexts):
                if isinstance(place.ctx, RecurrentContext):
                    states = place.ctx.saved["states"]
                    given_states = states if isinstance(states, tuple) else (states,)
                    place.ctx.initial = tuple(map(self._device.xp.array, given_states))
            return self._device.xp.array(y[:, 0] if y.ndim == 3 else y)
