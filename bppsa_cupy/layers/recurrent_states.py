"""States in PyTorch's shape, (num_layers D, B, H), h or h and c, and in the engine's, (S, B) a direction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.layers.recurrent_context import RecurrentContext


def set_states(arrays: Iterable[Array], given: tuple[Array, ...] | None, components: tuple[int, ...]) -> None:
    """Set arrays (S, B), one a direction, from PyTorch's, which are those components of the state; 0 for
    others, and for None."""
    for number, array in enumerate(arrays):
        if given is None or len(given) * given[0].shape[2] < len(array):
            array[...] = 0
        if given is None:
            continue
        H = given[0].shape[2]
        for component, values in zip(components, given, strict=True):
            array[component * H : (component + 1) * H].T[...] = values[number]


def state_buffers(
    ctx: RecurrentContext, name: str, arrays: list[Array], H: int, components: tuple[int, ...]
) -> tuple[Array, ...]:
    """Buffers of the pass for those components of arrays (S, B), one a direction, in PyTorch's shape."""
    shape = (len(arrays), arrays[0].shape[1], H)
    return tuple(ctx.buffer(f"{name}_{place}", shape) for place in range(len(components)))


def get_states(buffers: tuple[Array, ...], arrays: list[Array], H: int, components: tuple[int, ...]) -> None:
    """Fill `state_buffers` from the arrays."""
    for buffer, component in zip(buffers, components, strict=True):
        for number, array in enumerate(arrays):
            buffer[number] = array[component * H : (component + 1) * H].T


def as_given(buffers: tuple[Array, ...]) -> Any:
    """States as PyTorch's layers give them: h, or (h, c)."""
    return buffers[0] if len(buffers) == 1 else buffers
