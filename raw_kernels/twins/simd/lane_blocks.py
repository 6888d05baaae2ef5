"""Cutting a batch into blocks of lanes, of which the last may have fewer samples.

A twin that works on a block is told how many samples it has, as a uint64, or None where it is full: then
the compiler makes code without masks.
"""

import numpy as np
from numba import types
from numba.extending import overload

from bppsa_cupy.raw_kernels.twins.scans.batched import load_some, store_some
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, load, store
from bppsa_cupy.system.compiled import compiled


def load_lanes(array, index, count):
    """The lanes array[index : index + count], zeros after them; all where `count` is None."""
    raise NotImplementedError


def is_full(count):
    """Whether this Numba type of `count` says that a block is full."""
    return isinstance(count, types.NoneType)


@overload(load_lanes)
def _load_lanes(array, index, count):
    if is_full(count):
        return lambda array, index, count: load(array, index)
    return lambda array, index, count: load_some(array, index, count)


@compiled()
def copy_to_lanes(source, first, plane, planes, spacing, rows, blocks, count, target):
    """Copy blocks of `count` samples of `rows` rows of every plane, `spacing` and `plane` elements apart, to
    (blocks, planes, rows, LANES), zeros after them."""
    L, place = np.uint64(LANES), np.uint64(0)
    for block in range(np.uint64(blocks)):
        for row in range(np.uint64(planes * rows)):
            start = np.uint64(first + row // rows * plane + row % rows * spacing) + block * L
            store(target, place, load_some(source, start, np.uint64(count)))
            place += L


@compiled()
def copy_from_lanes(source, target, first, plane, planes, spacing, rows, blocks, count):
    """The inverse of `copy_to_lanes`."""
    L, place = np.uint64(LANES), np.uint64(0)
    for block in range(np.uint64(blocks)):
        for row in range(np.uint64(planes * rows)):
            start = np.uint64(first + row // rows * plane + row % rows * spacing) + block * L
            store_some(target, start, np.uint64(count), load(source, place))
            place += L
