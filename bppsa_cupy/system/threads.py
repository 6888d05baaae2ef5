"""Numba's number of threads, at a fraction of what its own functions cost, which take two locks a call."""

from __future__ import annotations

import numba
from numba.np.ufunc import parallel


def get_threads() -> int:
    """numba.get_num_threads()."""
    return parallel._get_num_threads() if parallel._is_initialized else numba.get_num_threads()


def set_threads(count: int) -> None:
    """numba.set_num_threads(count), of a count that Numba has once its threads are there."""
    if parallel._is_initialized:
        parallel._set_num_threads(count)
    else:
        numba.set_num_threads(count)
