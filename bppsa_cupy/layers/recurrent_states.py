"""States in PyTorch's shape, (num_layers D, B, H), h or h and c, and in the engine's, (S, B) a direction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.layers.recurrent_context import RecurrentContext


def set_states(arrays: Iterable[Array], given: tuple[Array, ...] | None) -> None:
    """Set arrays (S, B), one a direction, from PyTorch's; 0 for None."""
    for number, array in enumerate(arrays):
        if given is None:
            array[...] = 0
            continue
        H = given[0].shape[2]
        for component, values in enumerate(given):
            array[component * H : (component + 1) * H] = values[number].T


def get_states(ctx: RecurrentContext, name: str, arrays: list[Array], H: int) -> Any:
    """Arrays (S, B), one a direction, as PyTorch's in buffers of the pass: h, or (h, c)."""
    rows, batch = arrays[0].shape
    components = []
    for component in range(rows // H):
        result = ctx.buffer(f"{name}_{component}", (len(arrays), batch, H))
        for number, array in enumerate(arrays):
            result[number] = array[component * H : (component + 1) * H].T
        components.append(result)
    return components[0] if len(components) == 1 else tuple(components)
