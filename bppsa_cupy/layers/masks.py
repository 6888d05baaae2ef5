"""Weight masks."""

from __future__ import annotations

from typing import Any

import numpy as np

from bppsa_cupy.errors import ShapeError


def as_mask(layer: str, mask: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """`mask` as a read-only bool array of `shape`, or None. Raises ShapeError naming both shapes."""
    if mask is None:
        return None
    array = np.array(mask, dtype=bool)
    if array.shape != shape:
        raise ShapeError(f"{layer} got a mask of shape {array.shape}: its weight has shape {shape}")
    array.flags.writeable = False
    return array
