"""Checks of arguments.

Every function raises `error` with a message that names `owner` (the called function), the argument, its
value and what to pass. By default `error` is ShapeError for sizes and arrays, and ArgumentError for others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bppsa_cupy.errors import ArgumentError, BppsaError, DeviceError, ShapeError, reason_of

T = TypeVar("T")

#: The largest size of an array, or number of anything.
LARGEST = 2**63 - 1


def as_integer(
    owner: str,
    name: str,
    value: Any,
    least: int | None = None,
    most: int | None = LARGEST,
    *,
    error: type[BppsaError] = ShapeError,
) -> int:
    """`value`, an integer from `least` to `most`, as an int; bools are refused. None is no bound."""
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        number = None
    else:
        try:
            number = value.__index__()
        except TypeError:  # an array of more than one element, or of no integers
            number = None
    above = number is not None and most is not None and number > most
    if number is None or above or (least is not None and number < least):
        least_text = "" if least is None else f" of at least {least}"
        most_text = f" and at most {most}" if above else ""
        raise error(f"{owner} got {name}={value!r}: pass an integer{least_text}{most_text}")
    return int(number)


def is_one_of(value: Any, words: Iterable[str]) -> bool:
    """Whether `value` is a string among these words."""
    return isinstance(value, str) and value in words


def as_choice(
    owner: str, name: str, value: Any, words: Iterable[str], *, error: type[BppsaError] = ArgumentError
) -> str:
    """Return `value`. Raises `error` unless it is among these words."""
    if not is_one_of(value, words):
        raise error(f"{owner} got {name}={value!r}: pass one of {', '.join(map(repr, words))}")
    return str(value)


def as_path(owner: str, name: str, value: Any, *, error: type[BppsaError] = ArgumentError) -> Path:
    """`value`, a string or `os.PathLike`, as a Path, whether the file exists or not."""
    try:
        path = Path(value)
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            path.lstat()
    except (TypeError, ValueError, OSError) as cause:
        raise error(
            f"{owner} got {name}={value!r}, which is not a valid path ({reason_of(cause)}): pass another path"
        ) from cause
    return path


def as_pair(owner: str, name: str, value: Any, least: int) -> tuple[int, int]:
    """`value`, an integer of at least `least`, one in a list or tuple, or two, as a pair."""
    sides = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(sides) not in (1, 2) or not all(hasattr(side, "__index__") for side in sides):
        raise ShapeError(f"{owner} got {name}={value!r}: pass an integer or a pair of integers")
    first, last = (as_integer(owner, name, side, least) for side in (sides[0], sides[-1]))
    return first, last


def as_flag(owner: str, name: str, value: Any, *, error: type[BppsaError] = ArgumentError) -> bool:
    """`value`, True or False (or 1 or 0), as a bool."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, (int, np.bool_, np.integer)) or value not in (0, 1):
        raise error(f"{owner} got {name}={value!r}: pass True or False")
    return bool(value)


def as_number(
    owner: str,
    name: str,
    value: Any,
    fits: Callable[[float], bool],
    takes: str,
    *,
    error: type[BppsaError] = ArgumentError,
) -> float:
    """`value`, a real number that `fits`, as a float; bools are refused.

    `takes` describes the accepted values in the message, such as "a number from 0 to 1".
    """
    number = None
    if not isinstance(value, (bool, np.bool_)) and isinstance(value, Real):
        try:
            number = float(value)
        except OverflowError:  # an integer beyond the largest float
            pass
    if number is None or not fits(number):
        raise error(f"{owner} got {name}={value!r}: pass {takes}")
    return number


def as_finite(owner: str, name: str, value: Any) -> float:
    """`value`, a real number that is finite, as a float."""
    return as_number(owner, name, value, math.isfinite, "a finite number")


def as_positive(owner: str, name: str, value: Any) -> float:
    """`value`, a finite number above 0, as a float."""
    return as_number(owner, name, value, lambda v: 0 < v < math.inf, "a number above 0")


def as_probability(owner: str, name: str, value: Any) -> float:
    """`value`, a number from 0 to 1, as a float."""
    return as_number(owner, name, value, lambda v: 0 <= v <= 1, "a probability from 0 to 1")


def as_integers(owner: str, name: str, value: Any, *, error: type[BppsaError] = ShapeError) -> np.ndarray:
    """`value` as an array of its integer dtype; an empty array of any dtype counts as integers."""
    array = as_plain_array(owner, name, value, error=error)
    if array.dtype.kind not in "iu" and array.size:
        raise error(f"{owner} got {name} of {array.dtype}: pass integers")
    return array if array.dtype.kind in "iu" else array.astype(np.int64)


def as_plain_array(owner: str, name: str, value: Any, *, error: type[BppsaError] = ShapeError) -> np.ndarray:
    """`value` as a NumPy array of numbers or bools (`check_plain`)."""
    check_plain(owner, name, value, error=error)
    try:
        array = np.asarray(value.get() if hasattr(value, "__cuda_array_interface__") else value)
    except (AttributeError, RuntimeError, TypeError, ValueError) as cause:
        raise error(f"{owner} got {name} that cannot be read as an array ({cause}): pass numbers") from cause
    check_plain(owner, name, array, error=error)
    return array


def check_plain(owner: str, name: str, array: Any, *, error: type[BppsaError] = ShapeError) -> None:
    """Refuse masked arrays, and arrays of text, dates or objects."""
    if isinstance(array, np.ma.MaskedArray):
        raise error(
            f"{owner} got {name} as a masked array: pass an array without a mask, for example array.filled(0)"
        )
    dtype = getattr(array, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind not in "biufc":
        raise error(f"{owner} got {name} of {dtype}: pass numbers")


def as_output(
    owner: str, name: str, array: Any, xp: Any, shape: Iterable[int], dtype: Any, read: Iterable[Any] = ()
) -> Any:
    """`array`, if results of this shape and dtype can be written there, apart from arrays that are `read`.

    Raises DeviceError unless it is an array of `xp`.
    """
    library = xp.__name__.split(".")[0]
    as_instance(owner, name, array, xp.ndarray, f"a {library} array", error=DeviceError)
    check_plain(owner, name, array)
    if tuple(array.shape) != tuple(shape) or array.dtype != dtype:
        raise ShapeError(
            f"{owner} got {name} of {array.dtype} and shape {tuple(array.shape)}: pass {dtype} of shape "
            f"{tuple(shape)}"
        )
    if not array.flags.c_contiguous or not getattr(array.flags, "writeable", True):
        fault = "read-only" if array.flags.c_contiguous else "not C-contiguous"
        raise ShapeError(
            f"{owner} got {name}, an array that is {fault}: pass a writeable, C-contiguous array"
        )
    if any(isinstance(other, xp.ndarray) and xp.may_share_memory(array, other) for other in read):
        raise ShapeError(
            f"{owner} got {name}, an array that shares memory with another argument: pass a new array"
        )
    return array


def as_instance(
    owner: str, name: str, value: Any, kind: type[T], takes: str, *, error: type[BppsaError] = ArgumentError
) -> T:
    """`value`, an object of the class `kind`, which messages describe as `takes`: "a Sequential"."""
    if not isinstance(value, kind):
        raise error(f"{owner} got {name} of {type(value).__name__}: pass {takes}")
    return value


def as_list(
    owner: str, name: str, value: Any, takes: str, *, error: type[BppsaError] = ArgumentError
) -> list[Any]:
    """The items of `value`; strings are refused."""
    try:
        if not isinstance(value, (str, bytes)):
            return list(value)
    except TypeError:  # no iterable, or an array without axes
        pass
    raise error(f"{owner} got {name} of {type(value).__name__}: pass {takes}")
