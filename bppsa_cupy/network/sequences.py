"""What a pass over sequences is given beside its input: where samples end, and states of recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Recurrent
from bppsa_cupy.layers.recurrent import RecurrentContext
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.timescan.lengths import take_lengths


def set_sequences(current: Pass, lengths: Any, states: Any) -> None:
    """Hand lengths and initial states to the recurrent layers of a pass. Raises ShapeError."""
    taken = None
    if lengths is not None:
        if not any(layer.is_recurrent() for layer in current.architecture.layers):
            raise ShapeError("lengths were given and no layer of the network is recurrent: leave them out")
        taken = take_lengths(current.device, lengths, current.batch, current.input.shape[1])
    initial = _checked_states(current, states, "the initial state")
    for ctx in current.layers:
        ctx.lengths = taken
    for index, ctx in current.recurrent.items():
        ctx.initial, ctx.final_gradient = initial.get(index), None


def set_state_gradients(current: Pass, given: Any) -> None:
    """Hand the gradients by final states to the recurrent layers of a pass. Raises ShapeError."""
    what = "the gradient by the final state"
    gradients = {} if given is None else _checked_states(current, given, what)
    for index, ctx in enumerate(current.layers):
        if isinstance(ctx, RecurrentContext):
            ctx.final_gradient = gradients.get(index)


def _checked_states(current: Pass, given: Any, what: str) -> dict[int, tuple[Array, ...]]:
    """What was given of a state, by the layer's index, as arrays on the device."""
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
    if given is None or isinstance(given, Mapping):
        return given or {}
    if len(recurrent) == 1:
        return dict.fromkeys(recurrent, given)
    if not recurrent:
        raise ShapeError(f"{what} was given and no layer of the network is recurrent: leave it out")
    keys = ", ".join(f"{index}: ..." for index in recurrent)
    raise ShapeError(
        f"{what} was given as one {type(given).__name__} for {len(recurrent)} recurrent layers: give it by "
        f"the layer's index, {{{keys}}}"
    )
