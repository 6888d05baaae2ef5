"""Arrays of other libraries, and warnings that are given once."""

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


def check_detached(array: Any) -> None:
    """Refuse a PyTorch tensor that tracks gradients."""
    if getattr(array, "requires_grad", False) and hasattr(array, "detach"):
        raise ShapeError(
            f"an argument is a {type(array).__name__} that tracks gradients: pass tensor.detach(), or use a "
            "module of bppsa_cupy.torch"
        )


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
