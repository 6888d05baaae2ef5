"""The forward pass: a batch through layers, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from bppsa_cupy.conversion import of_dtype, of_list
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Recurrent
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.timescan.lengths import take_lengths


def begin(current: Pass, x: Any, lengths: Any, states: Any, keep: bool) -> Array:
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
    set_sequences(current, lengths, states)
    return given


def take_input(
    owner: str,
    device: Device,
    dtype: np.dtype,
    x: Any,
    check: Callable[[tuple[int, ...]], object],
) -> Array:
    """A batch on the device, of the network's dtype. A list, and an array of another dtype, are converted
    where nothing is lost, the latter with a warning the first time.

    check  raises ShapeError unless a batch may have a shape

    Raises ShapeError where a value would change.
    """
    given = device.asarray(of_list(x, dtype))
    check(given.shape)
    if given.dtype == dtype:
        return given
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
