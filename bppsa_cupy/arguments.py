"""Checking arguments: each is taken for what it is, or refused by name.

Every function raises `error`, ShapeError by default, with a message that names `owner` (who was called), the
argument, what was given and what it takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bppsa_cupy.errors import BppsaError, DeviceError, ShapeError, reason_of

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
    """`value`, an integer of Python or NumPy from `least` to `most`, as an int; True and False are none. A
    bound that is None is no bound."""
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
        raise error(f"{owner} got {name}={value!r}: it takes an integer{least_text}{most_text}")
    return int(number)


def is_one_of(value: Any, words: Iterable[str]) -> bool:
    """Whether `value` is one of these words; an array, whose comparison gives another, is none."""
    return isinstance(value, str) and value in words


def as_path(owner: str, name: str, value: Any, *, error: type[BppsaError] = ShapeError) -> Path:
    """`value`, a text or what is a path of the system's (`os.PathLike`), as a Path, whether it exists
    or not. Names that the system does not take are refused."""
    try:
        path = Path(value)
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            path.lstat()
    except (TypeError, ValueError, OSError) as cause:
        raise error(f"{owner} got {name}={value!r}: it takes a path ({reason_of(cause)})") from cause
    return path


def as_pair(owner: str, name: str, value: Any, least: int) -> tuple[int, int]:
    """`value`, an integer of at least `least`, one in a list or tuple, or two, as a pair."""
    sides = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(sides) not in (1, 2) or not all(hasattr(side, "__index__") for side in sides):
        raise ShapeError(f"{owner} got {name}={value!r}: it takes an integer or a pair of them")
    first, last = (as_integer(owner, name, side, least) for side in (sides[0], sides[-1]))
    return first, last


def as_flag(owner: str, name: str, value: Any, *, error: type[BppsaError] = ShapeError) -> bool:
    """`value`, True or False (or 1 or 0), as a bool."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, (int, np.bool_, np.integer)) or value not in (0, 1):
        raise error(f"{owner} got {name}={value!r}: it takes True or False")
    return bool(value)


def as_number(
    owner: str,
    name: str,
    value: Any,
    fits: Callable[[float], bool],
    takes: str,
    *,
    error: type[BppsaError] = ShapeError,
) -> float:
    """`value`, a real number of Python or NumPy that `fits`, as a float; True and False are none.

    takes  what the message says that fits, as "a number from 0 to 1"; NaN fits no comparison
    """
    number = None
    if not isinstance(value, (bool, np.bool_)) and isinstance(value, Real):
        try:
            number = float(value)
        except OverflowError:  # an integer beyond the largest float
            pass
    if number is None or not fits(number):
        raise error(f"{owner} got {name}={value!r}: it takes {takes}")
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
    """`value` as an array of the integer type it has; an empty one of any type counts as integers."""
    array = as_plain_array(owner, name, value, error=error)
    if array.dtype.kind not in "iu" and array.size:
        raise error(f"{owner} got {name} of {array.dtype}: it takes integers")
    return array if array.dtype.kind in "iu" else array.astype(np.int64)


def as_plain_array(owner: str, name: str, value: Any, *, error: type[BppsaError] = ShapeError) -> np.ndarray:
    """`value`, of NumPy, CuPy or what NumPy reads, as a NumPy array of numbers or bools (`check_plain`)."""
    check_plain(owner, name, value, error=error)
    try:
        array = np.asarray(value.get() if hasattr(value, "__cuda_array_interface__") else value)
    except (AttributeError, RuntimeError, TypeError, ValueError) as cause:
        raise error(f"{owner} got {name} that is no array ({cause}): it takes numbers") from cause
    check_plain(owner, name, array, error=error)
    return array


def check_plain(owner: str, name: str, array: Any, *, error: type[BppsaError] = ShapeError) -> None:
    """Refuse a masked array, whose mask would be lost, and one of text, dates or objects, which a conversion
    might read as numbers. What is no array of NumPy or CuPy is left to its conversion."""
    if isinstance(array, np.ma.MaskedArray):
        raise error(f"{owner} got {name} as a masked array: it takes one without a mask, as array.filled(0)")
    dtype = getattr(array, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind not in "biufc":
        raise error(f"{owner} got {name} of {dtype}: it takes numbers")


def as_output(
    owner: str, name: str, array: Any, xp: Any, shape: Iterable[int], dtype: Any, read: Iterable[Any] = ()
) -> Any:
    """`array`, if results of this shape and dtype may be written there: an array of `xp`, C-contiguous,
    writable, and apart from those that are `read`. Raises DeviceError for what is no array of `xp`."""
    library = xp.__name__.split(".")[0]
    as_instance(owner, name, array, xp.ndarray, f"a {library} array", error=DeviceError)
    check_plain(owner, name, array)
    if tuple(array.shape) != tuple(shape) or array.dtype != dtype:
        raise ShapeError(
            f"{owner} got {name} of {array.dtype} and shape {tuple(array.shape)}: it takes {dtype} of shape "
            f"{tuple(shape)}"
        )
    if not array.flags.c_contiguous or not getattr(array.flags, "writeable", True):
        raise ShapeError(f"{owner} got {name} that is not C-contiguous or is read-only: give a new array")
    check_apart(owner, name, array, xp, read)
    return array


def check_apart(owner: str, name: str, array: Any, xp: Any, others: Iterable[Any]) -> None:
    """Refuse an array to write to that may share memory with another one; what is no array of `xp` shares
    none."""
    if isinstance(array, xp.ndarray) and any(
        isinstance(other, xp.ndarray) and xp.may_share_memory(array, other) for other in others
    ):
        raise ShapeError(f"{owner} got {name} that overlaps another of its arrays: give a new array")


def as_instance(
    owner: str,
    name: str,
    value: Any,
    kind: type[T],
    takes: str,
    *,
    error: type[BppsaError] = ShapeError,
) -> T:
    """`value`, an object of the class `kind`; `takes` is what the message says it is, as
    "a Sequential"."""
    if not isinstance(value, kind):
        raise error(f"{owner} got {name} of {type(value).__name__}: it takes {takes}")
    return value


def as_list(
    owner: str, name: str, value: Any, takes: str, *, error: type[BppsaError] = ShapeError
) -> list[Any]:
    """The items of `value`, whatever holds them; text and what holds no items are refused."""
    try:
        if not isinstance(value, (str, bytes)):
            return list(value)
    except TypeError:  # it holds no items, or is an array without an axis
        pass
    raise error(f"{owner} got {name} of {type(value).__name__}: it takes {takes}")
