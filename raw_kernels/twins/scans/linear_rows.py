"""What the twins of linear scans share: a step of lanes, and how rows are laid over tasks.

A task is a chunk of a sample, or some of its columns where there are fewer than threads. It goes from step to
step, at each through its columns, as they lie in memory; what is carried stays in the first cache, or in a
register where a task has one group of lanes. `count` is a group's lanes, None where all are there.
"""

import numpy as np
from numba import types
from numba.extending import overload

from bppsa_cupy.raw_kernels.kernel import one_thread_per
from bppsa_cupy.raw_kernels.twins.scans.batched import GROUP, store_some, stream
from bppsa_cupy.raw_kernels.twins.simd.lanes import number, store
from bppsa_cupy.raw_kernels.twins.simd.pairs import times, times_plus
from bppsa_cupy.raw_kernels.twins.threads.threads import thread_count
from bppsa_cupy.system.compiled import compiled, part


def launch(s):
    """A thread a walk."""
    return one_thread_per(s["chunks"] * s["batch"] * (s["width"] // (2 if s["paired"] else 1)))


@compiled()
def cuts_of(walks, width):
    """Into how many tasks the columns of each walk are cut."""
    groups, threads = (width + 15) // 16, thread_count()
    return max(1, min(groups, -(-threads // max(1, walks))))


@compiled()
def task_of(task, cuts, lengths, batch, steps, width, chunk):
    """Of a task its chunk and sample, the chunk's first step, that after the last one before the sample's
    end, that after the last one, and its columns."""
    cut, walk = task % cuts, task // cuts
    k, sample = walk // batch, walk % batch
    begin = k * chunk
    end = min(begin + chunk, steps)
    live = max(begin, min(end, lengths[sample]))
    groups = (width + 15) // 16
    left, right = groups * cut // cuts * 16, min(width, groups * (cut + 1) // cuts * 16)
    return k, sample, begin, live, end, np.uint64(left), np.uint64(right)


@part(forceinline=True)
def _place_in(sample, step, stride, samples, steps, width):
    """Where a row begins in (samples or 1, steps or 1, width), and how far after it the next one in the
    direction `stride` does."""
    apart = width if steps > 1 else 0
    place = (sample * steps * width if samples > 1 else 0) + step * apart
    return np.uint64(place), np.uint64(stride * apart)


@part(forceinline=True)
def rows_of_walk(sample, begin, live, descending, batch, steps, width, a_samples, a_steps, reset_samples):
    """Of a walk over the steps from `begin` to before `live` where the first row of factors, of terms and of
    resets begins, and how far after each the next one does."""
    t, stride = (live - 1, -1) if descending else (begin, 1)
    factor, factor_apart = _place_in(sample, t, stride, a_samples, a_steps, width)
    place, apart = _place_in(sample, t, stride, batch, steps, width)
    mark, mark_apart = _place_in(sample, t, stride, reset_samples, steps, 1)
    return factor, factor_apart, place, apart, mark, mark_apart


def walk_of(walk_row, walk_group):
    """The walk over columns [left, right): by `walk_row` (left, right, *given) of several groups of lanes, by
    `walk_group` (left, count, *given) of one."""

    @part()
    def walk(left, right, *given):
        if right - left > GROUP:
            walk_row(left, right, *given)
        elif right - left == GROUP:
            walk_group(left, None, *given)
        else:
            walk_group(left, right - left, *given)

    return walk


def put_lanes(array, index, count, value, streamed):
    """Set the lanes array[index : index + count], all where `count` is None; past the caches if
    `streamed`."""
    raise NotImplementedError


@overload(put_lanes)
def _put_lanes(array, index, count, value, streamed):
    if not isinstance(count, types.NoneType):
        return lambda array, index, count, value, streamed: store_some(array, index, count, value)

    def whole(array, index, count, value, streamed):
        if streamed:
            stream(array, index, value)
        else:
            store(array, index, value)

    return whole


@part(forceinline=True)
def step_of(paired, a, sign, carried, term, behind, reset):
    """The state of a step, and what goes on."""
    if behind:
        h = carried + term
        return h, (number(h, 0.0) if reset else times(paired, a, sign, h))
    h = term if reset else times_plus(paired, a, sign, carried, term)
    return h, h


@part()
def clear_rows(array, first, end, width, left, right):
    """Zeros in some columns of rows from `first` to before `end`."""
    for row in range(first, end):
        for column in range(left, right):
            array[np.uint64(row) * width + column] = 0
