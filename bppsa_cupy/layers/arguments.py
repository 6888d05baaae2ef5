"""Checking the arguments of layers."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.geometry import Pair


def as_size(layer: str, name: str, value: Any, least: int = 1) -> int:
    """`value` as an integer. Raises ShapeError where it is none, or below `least`."""
    if not hasattr(value, "__index__") or int(value) < least:
        raise ShapeError(f"{layer} got {name}={value!r}: it takes an integer of at least {least}")
    return int(value)


def as_flag(layer: str, name: str, value: Any) -> bool:
    """`value`, True or False (or 1 or 0), as a bool. Raises ShapeError where it is neither."""
    if not (hasattr(value, "__index__") or isinstance(value, np.bool_)) or value not in (0, 1):
        raise ShapeError(f"{layer} got {name}={value!r}: it takes True or False")
    return bool(value)


def as_probability(layer: str, name: str, value: Any) -> float:
    """`value` as a float. Raises ShapeError where it is no number, or not from 0 to 1."""
    if not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise ShapeError(f"{layer} got {name}={value!r}: it takes a probability from 0 to 1")
    return float(value)


def as_positive(layer: str, name: str, value: Any) -> float:
    """`value` as a float. Raises ShapeError where it is no number above 0, or not finite."""
    if not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ShapeError(f"{layer} got {name}={value!r}: it takes a number above 0")
    return float(value)


def as_pair(layer: str, name: str, value: Any, least: int) -> Pair:
    """`value`, an integer or a pair of them, as a pair. Raises ShapeError below `least`."""
    sides = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(sides) != 2 or not all(hasattr(side, "__index__") for side in sides):
        raise ShapeError(f"{layer} got {name}={value!r}: it takes an integer or a pair of them")
    pair = (int(sides[0]), int(sides[1]))
    if min(pair) < least:
        raise ShapeError(f"{layer} got {name}={value!r}: it must be at least {least}")
    return pair


def as_argument(pair: Pair) -> int | list[int]:
    """A pair as the constructor's JSON argument: one integer where both sides agree."""
    return pair[0] if pair[0] == pair[1] else list(pair)


def as_mask(layer: str, mask: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """`mask` as a read-only bool array of `shape`, or None. Raises ShapeError naming both shapes."""
    if mask is None:
        return None
    array = np.array(mask, dtype=bool)
    if array.shape != shape:
        raise ShapeError(f"{layer} got a mask of shape {array.shape}: its weight has shape {shape}")
    array.flags.writeable = False
    return array


def check_images(layer: str, input_shape: tuple[int, ...], channels: int | None = None) -> None:
    """Raise ShapeError unless `input_shape` is (channels, height, width) of sizes at least 1."""
    if len(input_shape) != 3:
        raise ShapeError(f"{layer} got input {input_shape}: it takes images (channels, height, width)")
    if channels is not None and input_shape[0] != channels:
        raise ShapeError(f"{layer} got input {input_shape}: {input_shape[0]} channels, it takes {channels}")
    if min(input_shape) < 1:
        raise ShapeError(f"{layer} got input {input_shape}: every size must be at least 1")
