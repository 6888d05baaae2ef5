"""The arguments of layers alone: masks, images, and pairs as a configuration holds them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_plain_array
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import ShapeError


def as_mask(layer: str, mask: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return `mask` as a read-only bool array of `shape`, or None.

    Raises ShapeError for another shape, or an element that is not a finite number.
    """
    if mask is None:
        return None
    raw = as_plain_array(layer, "mask", mask)
    if raw.shape != shape:
        raise ShapeError(
            f"{layer} got a mask of shape {raw.shape}: pass a mask with the weight's shape {shape}"
        )
    wrong = np.argwhere(~np.isfinite(raw))
    if wrong.size:
        place = tuple(wrong[0].tolist())
        raise ShapeError(
            f"{layer} got a mask with the value {raw[place]} at {place}: pass 0 or 1 for each weight"
        )
    array = np.array(raw, dtype=bool)
    array.flags.writeable = False
    return array


def check_images(layer: str, input_shape: tuple[int, ...], channels: int | None = None) -> None:
    """Raise ShapeError unless `input_shape` is (channels, height, width) of sizes at least 1."""
    if len(input_shape) != 3:
        raise ShapeError(f"{layer} got input {input_shape}: pass images (channels, height, width)")
    if channels is not None and input_shape[0] != channels:
        raise ShapeError(
            f"{layer} got input {input_shape} with {input_shape[0]} channels: pass {channels} channels, or "
            "change the layer"
        )
    if min(input_shape) < 1:
        raise ShapeError(f"{layer} got input {input_shape}: pass sizes of at least 1")


def as_bits(device: Device, mask: np.ndarray, dtype: np.dtype) -> Array:
    """Return a mask as integers as wide as the dtype, with all bits set where a value is kept.

    `hold` is then a single operation, and NaN does not pass.
    """
    bits = np.dtype(f"u{dtype.itemsize}")
    return device.asarray(np.where(mask, bits.type(np.iinfo(bits).max), bits.type(0)))


def hold(values: Array, bits: Array) -> None:
    """Set pruned values to 0, in place."""
    masked = values.view(bits.dtype)
    masked &= bits
