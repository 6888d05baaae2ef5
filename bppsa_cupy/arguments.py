"""Checking arguments: each is taken for what it is, or refused by name.

Every function raises `error`, ShapeError by default, with a message that names `owner` (who was called), the
argument, what was given and what it takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bppsa_cupy.errors import BppsaError, ShapeError

#: The largest size of an array, or number of anything.
LARGEST = 2**63 - 1


def as_integer(
    owner: str,
    name: str,
    value: Any,
    least: int | None = None,
    most: int = LARGEST,
    *,
    error: type[BppsaError] = ShapeError,
) -> int:
    """`value`, an integer of Python or NumPy from `least` to `most`, as an int; True and False are none."""
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        number = None
    else:
        try:
            number = value.__index__()
        except TypeError:  # an array of more than one element, or of no integers
            number = None
    if number is None or not (least is None or number >= least) or number > most:
        least_text = "" if least is None else f" of at least {least}"
        most_text = f" and at most {most}" if number is not None and number > most else ""
        raise error(f"{owner} got {name}={value!r}: it takes an integer{least_text}{most_text}")
    return int(number)


def as_integers(owner: str, name: str, value: Any, *, error: type[BppsaError] = ShapeError) -> np.ndarray:
    """`value` as an array of the integer type it has; an empty one of any type counts as integers."""
    array = as_plain_array(owner, name, value, error=error)
    if array.dtype.kind not in "iu" and array.size:
        raise error(f"{owner} got {name} of {array.dtype}: it takes integers")
    return array if array.dtype.kind in "iu" else array.astype(np.int64)


def as_plain_array(owner: str, name: str, value: Any, *, error: type[BppsaError] = ShapeError) -> np.ndarray:
    """`value` as a NumPy array of numbers or bools; a masked array, whose mask would be lost, is refused."""
    if isinstance(value, np.ma.MaskedArray):
        raise error(f"{owner} got {name} as a masked array: it takes one without a mask, as array.filled(0)")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as cause:
        raise error(f"{owner} got {name} that is no array ({cause}): it takes numbers") from cause
    if array.dtype.kind not in "biufc":
        raise error(f"{owner} got {name} of {array.dtype}: it takes numbers")
    return array
