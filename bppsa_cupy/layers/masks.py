"""Weight masks."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from bppsa_cupy.errors import ShapeError

if TYPE_CHECKING:
    from bppsa_cupy.layers.base import Layer


def as_mask(layer: str, mask: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """`mask` as a read-only bool array of `shape`, or None. Raises ShapeError naming both shapes."""
    if mask is None:
        return None
    array = np.array(mask, dtype=bool)
    if array.shape != shape:
        raise ShapeError(f"{layer} got a mask of shape {array.shape}: its weight has shape {shape}")
    array.flags.writeable = False
    return array


def takes_mask(layer: Layer) -> bool:
    """Whether the layer has an attribute `mask`, of its weight's shape or None."""
    return hasattr(layer, "mask")


def masked(layer: Layer, mask: Any) -> Layer:
    """A copy of a layer that takes a mask, with this one. Raises ShapeError naming both shapes."""
    result: Any = copy.copy(layer)
    result.mask = as_mask(repr(layer), mask, layer.parameter_shapes()["weight"])
    return result
