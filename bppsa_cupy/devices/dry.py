"""A device that computes nothing: arrays have sizes and no memory, launches are not made."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from bppsa_cupy.devices.base import Array, Device, Launch
from bppsa_cupy.raw_kernels.kernel import Kernel


class DryDevice(Device):
    """Passes through layers on it take the arrays that they take on the device it stands for, and no time.

    name  of that device, whose choices of how to compute are made

    All elements of an array are one place of memory, whose value is of no meaning; functions of `xp` that are
    given `out` return it.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.xp = name, _DryNumPy()

    def _take(self, shape: tuple[int, ...] | int, dtype: Any, nbytes: int) -> np.ndarray:
        sizes = shape if isinstance(shape, tuple) else (shape,)
        return np.lib.stride_tricks.as_strided(np.zeros(1, dtype), sizes, (0,) * len(sizes))

    def asarray(self, array: Any, dtype: Any = None) -> np.ndarray:
        return np.asarray(array, dtype)

    def to_host(self, array: Array) -> np.ndarray:
        return array

    def fetch(self, array: Array) -> Callable[[], np.ndarray]:
        return lambda: array

    def free_memory(self) -> int:
        return sys.maxsize

    @property
    def workers(self) -> int:
        return 1

    def synchronize(self) -> None:
        """Nothing is launched."""

    def launch(self, kernel: Kernel, *arguments: Any) -> None:
        pass

    def bind(self, kernel: Kernel, *arguments: Any) -> Launch:
        return lambda: None

    def bind_open(self, kernel: Kernel, names: Sequence[str], *arguments: Any) -> Callable[..., None]:
        return lambda *arrays: None

    def sequence(self, launches: Sequence[Launch]) -> Launch:
        return lambda: None

    def _prepare(self, *_: Any) -> NoReturn:
        raise AssertionError("no launch is bound")


class _DryNumPy:
    """NumPy, whose functions return `out` where it is given and compute nothing."""

    def __getattr__(self, name: str) -> Any:
        made = getattr(np, name)
        if isinstance(made, type) or not callable(made):
            return made

        @functools.wraps(made)
        def call(*arguments: Any, out: Any = None, **options: Any) -> Any:
            return made(*arguments, **options) if out is None else out

        return call
