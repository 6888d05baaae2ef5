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
            array[component * H : (component + 1) * H] = values[number].T


def get_states(
    ctx: RecurrentContext, name: str, arrays: list[Array], H: int, components: tuple[int, ...]
) -> Any:
    """Those components of arrays (S, B), one a direction, as PyTorch's in buffers of the pass: h, or
    (h, c)."""
    batch, found = arrays[0].shape[1], []
    for place, component in enumerate(components):
        result = ctx.buffer(f"{name}_{place}", (len(arrays), batch, H))
        for number, array in enumerate(arrays):
            result[number] = array[component * H : (component + 1) * H].T
        found.append(result)
    return found[0] if len(found) == 1 else tuple(found)
