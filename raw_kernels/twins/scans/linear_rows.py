"""What the twins of linear scans share: a step of lanes, and how rows are laid over tasks.

A task is a chunk of a sample, or some of its columns where there are fewer than threads. It goes from step to
step, at each through its columns, as they lie in memory; what is carried stays in the first cache, or in a
register where a task has one group of lanes. `count` is a group's lanes, None where all are there.
"""

import numpy as np
from numba import types
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.kernel import one_thread_per
from bppsa_cupy.raw_kernels.twins.scans.batched import GROUP, past_caches
from bppsa_cupy.raw_kernels.twins.simd.lanes import lanes_at, number
from bppsa_cupy.raw_kernels.twins.simd.pairs import times, times_plus
from bppsa_cupy.raw_kernels.twins.simd.vectors import count_of
from bppsa_cupy.raw_kernels.twins.threads.threads import thread_count
from bppsa_cupy.system.compiled import compiled, part


def launch(s):
    """A thread a walk."""
    return one_thread_per(s["chunks"] * s["batch"] * (s["width"] // (2 if s["paired"] else 1)))


#: Outputs of at least so many bytes bypass the caches: with what is read beside them they leave the second.
LEAST_STREAMED = 1 << 22

#: Elements of a walk that are worth several threads: one goes through so many in a tenth of a millisecond.
LEAST_SHARED = 1 << 19

#: How long before they are read or written lines are asked for: some hundred nanoseconds of a walk.
AHEAD_BYTES = 2048


@compiled()
def shares_of(walks, width, elements):
    """Into how many tasks the columns of each walk are cut, and whether tasks are worth several threads."""
    if elements < LEAST_SHARED:
        return 1, False
    groups, threads = (width + 15) // 16, thread_count()
    cuts = max(1, min(groups, -(-threads // max(1, walks))))
    return cuts, walks * cuts > 1


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


@part(forceinline=True)
def ahead_of(array, width, apart):
    """How far before a row its lines are asked for: some rows that lie `apart`, of `width` elements."""
    return np.uint64(max(1, AHEAD_BYTES // (array.itemsize * width))) * apart


def walk_of(walk_row, walk_group, walk_four):
    """The walk over columns [left, right): by `walk_group` (left, count, *given) of one group of lanes, by
    `walk_four` (left, *given) of four, which do not wait for what was carried to come back from memory, by
    `walk_row` (left, right, *given) of any number."""

    @part()
    def walk(left, right, *given):
        if right - left == 4 * GROUP:
            walk_four(left, *given)
        elif right - left > GROUP:
            walk_row(left, right, *given)
        elif right - left == GROUP:
            walk_group(left, None, *given)
        else:
            walk_group(left, right - left, *given)

    return walk


def _put(builder, vectors, value, pointer, count, streamed):
    if count is not None:
        vectors.store(value, pointer, count)
        return
    with builder.if_else(streamed) as (past, into):
        with past:
            past_caches(builder, value, pointer)
        with into:
            vectors.store(value, pointer)


# Branches on whether arrays are written are LLVM's: around Numba's, references to the arrays would be counted
# in the innermost loop, by atomic operations.


@intrinsic
def put_lanes(typingctx, array, index, count, value, streamed):
    """Set the lanes array[index : index + count], all where `count` is None; past the caches if
    `streamed`."""

    def codegen(context, builder, signature, arguments):
        data, index, count, value, streamed = arguments
        vectors, pointer = lanes_at(context, builder, array, data, index)
        _put(builder, vectors, value, pointer, count_of(signature.args[2], count), streamed)
        return context.get_dummy_value()

    return types.void(array, types.uint64, count, value, types.boolean), codegen


@intrinsic
def put_or_sum(typingctx, array, index, sums, place, count, value, each, streamed):
    """`put_lanes` to an array where `each`; else add the lanes to those at `place` of `sums`."""

    def codegen(context, builder, signature, arguments):
        data, index, sums_data, place, count, value, each, streamed = arguments
        count = count_of(signature.args[4], count)
        with builder.if_else(each) as (put, add):
            with put:
                vectors, pointer = lanes_at(context, builder, array, data, index)
                _put(builder, vectors, value, pointer, count, streamed)
            with add:
                vectors, pointer = lanes_at(context, builder, sums, sums_data, place)
                vectors.store(builder.fadd(vectors.load(pointer, count), value), pointer, count)
        return context.get_dummy_value()

    kinds = array, types.uint64, sums, types.uint64, count, value, types.boolean, types.boolean
    return types.void(*kinds), codegen


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
