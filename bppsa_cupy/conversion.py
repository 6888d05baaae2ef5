"""Arrays of another kind than is taken: converted where nothing is lost, which is said once."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from bppsa_cupy.arguments import check_plain
from bppsa_cupy.errors import ShapeError

#: DLPack's number of CUDA's memory.
CUDA = 2

#: What this process has said.
_said: set[str] = set()


def say_once(key: str, text: str) -> None:
    """Issue the RuntimeWarning `text` once per process and key, at the caller's line outside this package."""
    if key in _said:
        return
    _said.add(key)
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("bppsa_cupy"):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, RuntimeWarning, stacklevel=level)


def of_dtype(owner: str, argument: str, array: Any, dtype: np.dtype, cure: str) -> Any:
    """Convert an array of NumPy or CuPy to `dtype` if that changes no value, and warn once.

    Parameters
    ----------
    owner, argument : str
        Names of the receiver and of the array, such as "the network" and "input".
    array : array
        The array to convert.
    dtype : numpy.dtype
        The dtype of the result.
    cure : str
        What the caller can do, such as "convert the input, as x.astype('float32')".

    Raises
    ------
    ShapeError
        If a value would change, for example a fraction as an integer.
    """
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in "biuf" or not (converted := _exactly(array, dtype))[1]:
        raise ShapeError(
            f"{owner} got {argument} of {array.dtype} with values that {dtype} cannot represent exactly: "
            f"{cure}"
        )
    say_once(
        f"{owner} {argument} {array.dtype} {dtype}",
        f"{owner} converted {argument} from {array.dtype} to {dtype}, which holds each value "
        f"exactly; to save the conversion, {cure}",
    )
    return converted[0]


def _exactly(array: Any, dtype: np.dtype) -> tuple[Any, bool]:
    """Convert `array` to `dtype`. The second result says whether no value changed; NaN stays NaN."""
    with np.errstate(all="ignore"):
        converted = array.astype(dtype)
        back = converted.real if converted.dtype.kind == "c" and array.dtype.kind != "c" else converted
        same = back.astype(array.dtype) == array
        if array.dtype.kind == "f" and dtype.kind in "fc":
            same |= array != array
        return converted, bool(same.all())


def of_list(value: Any, dtype: np.dtype) -> Any:
    """A list or tuple of numbers as an array, fractions as `dtype`: Python's numbers have no precision that
    the caller chose. Anything else is returned as it is, and so are lists whose parts differ in length."""
    if not isinstance(value, (list, tuple)):
        return value
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return value
    if array.dtype.kind in "iub":
        converted, same = _exactly(array, dtype)
        return converted if same else array
    if array.dtype == np.float64:
        with np.errstate(over="ignore"):
            converted = array.astype(dtype)
        return converted if np.isfinite(converted).sum() == np.isfinite(array).sum() else array
    return array


def without_gradient(array: Any) -> Any:
    """Detach a PyTorch tensor that tracks gradients, and warn once. Other arrays are returned as they are."""
    if not getattr(array, "requires_grad", False) or not hasattr(array, "detach"):
        return array
    say_once(
        "detach",
        f"a {type(array).__name__} that tracks gradients was given: only its values are used, as with "
        "tensor.detach(), and no gradient flows back to it; bppsa_cupy.torch has modules for PyTorch's "
        "autograd",
    )
    return array.detach()


def is_on_gpu(array: Any) -> bool:
    """Whether an array that exports DLPack is in the memory of a GPU."""
    return hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] == CUDA


def from_dlpack(array: Any) -> np.ndarray:
    """Make a NumPy array from an object that exports DLPack, or that NumPy can read.

    Raises ShapeError for other objects, such as ragged lists and bfloat16 tensors.
    """
    if isinstance(array, np.ndarray):
        return array
    try:
        return np.from_dlpack(array) if hasattr(array, "__dlpack__") else np.asarray(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ShapeError(
            f"a {type(array).__name__} cannot be read as an array ({error}): pass a NumPy or CuPy array, or "
            "an array that supports DLPack, such as a PyTorch tensor of float32 or float64"
        ) from error


def check_array(array: Any, dtype: Any) -> None:
    """Raise ShapeError where an array is none of numbers (`check_plain`), or a conversion to `dtype` would
    lose an imaginary part."""
    check_plain("a device", "an array", array)
    if dtype is not None and array.dtype.kind == "c" and np.dtype(dtype).kind != "c":
        raise ShapeError(
            f"an array of {array.dtype} cannot be converted to {np.dtype(dtype)}: pass a real array, for "
            "example array.real"
        )
