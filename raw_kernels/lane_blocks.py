"""Cutting a batch into blocks of lanes: the last one, where it is not full, is worked on in a padded copy."""

import numpy as np

from bppsa_cupy.raw_kernels.lanes import LANES
from bppsa_cupy.raw_kernels.twin import twin


@twin()
def padded_lanes(array, batch):
    """The samples behind the last full block of `array` (rows, batch), in a copy (rows, LANES); other lanes
    hold 0."""
    count = batch % LANES
    rows, first = array.size // batch, np.uint64(batch - count)
    copy = np.zeros(rows * LANES, array.dtype)
    for row in range(np.uint64(rows)):
        source, target = row * np.uint64(batch) + first, row * np.uint64(LANES)
        for lane in range(np.uint64(count)):
            copy[target + lane] = array[source + lane]
    return copy


@twin()
def space_lanes(array, batch):
    """Room (rows, LANES) for those samples of `array` (rows, batch)."""
    return np.empty(array.size // batch * LANES, array.dtype)


@twin()
def unpad_lanes(copy, array, batch):
    """Write such a copy's samples back."""
    count = batch % LANES
    rows, first = array.size // batch, np.uint64(batch - count)
    for row in range(np.uint64(rows)):
        target, source = row * np.uint64(batch) + first, row * np.uint64(LANES)
        for lane in range(np.uint64(count)):
            array[target + lane] = copy[source + lane]
