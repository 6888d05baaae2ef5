"""Cutting a batch into blocks of lanes, of which the last may have fewer samples.

A twin that works on a block is told how many samples it has, as a uint64, or None where it is full: then
the compiler makes code without masks.
"""

import numpy as np
from numba import types
from numba.extending import overload

from bppsa_cupy.raw_kernels.twins.batched import load_some, store_some
from bppsa_cupy.raw_kernels.twins.lanes import LANES, load, store


def load_lanes(array, index, count):
    """The lanes array[index : index + count], zeros behind them; all where `count` is None."""
    raise NotImplementedError


def store_lanes(array, index, value, count):
    """Set array[index : index + count] to the first lanes; all where `count` is None."""
    raise NotImplementedError


def ends_of_lanes(lengths, first, count, steps):
    """The lengths of a block's samples, `steps` where it has none; and the least of them."""
    raise NotImplementedError


def is_full(count):
    """Whether this Numba type of `count` says that a block is full."""
    return isinstance(count, types.NoneType)


@overload(load_lanes)
def _load_lanes(array, index, count):
    if is_full(count):
        return lambda array, index, count: load(array, index)
    return lambda array, index, count: load_some(array, index, count)


@overload(store_lanes)
def _store_lanes(array, index, value, count):
    if is_full(count):
        return lambda array, index, value, count: store(array, index, value)
    return lambda array, index, value, count: store_some(array, index, count, value)


@overload(ends_of_lanes)
def _ends_of_lanes(lengths, first, count, steps):
    def full(lengths, first, count, steps):
        ends = lengths[first : first + LANES]
        return ends, ends.min()

    def partly(lengths, first, count, steps):
        ends = np.full(LANES, steps, np.int64)
        ends[: np.int64(count)] = lengths[first : first + np.int64(count)]
        return ends, ends.min()

    return full if is_full(count) else partly
