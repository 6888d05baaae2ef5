"""Linear recurrences, elementwise: serial walks, and scans by chunks."""

import numpy as np
from numba import types
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.scans.batched import GROUP, is_streamed, past_caches
from bppsa_cupy.raw_kernels.twins.simd.denormals import flush_denormals, restore_denormals
from bppsa_cupy.raw_kernels.twins.simd.lane_blocks import load_lanes
from bppsa_cupy.raw_kernels.twins.simd.lanes import lanes_at, number
from bppsa_cupy.raw_kernels.twins.simd.pairs import times, times_plus
from bppsa_cupy.raw_kernels.twins.simd.prefetch import lanes_will_be_read, lanes_will_be_written
from bppsa_cupy.raw_kernels.twins.simd.vectors import count_of
from bppsa_cupy.raw_kernels.twins.threads.crew import tasks_of
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
    def walk(left, right, *arguments):
        if right - left == 4 * GROUP:
            walk_four(left, *arguments)
        elif right - left > GROUP:
            walk_row(left, right, *arguments)
        elif right - left == GROUP:
            walk_group(left, None, *arguments)
        else:
            walk_group(left, right - left, *arguments)

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


# ---- linear_scan_forward ----


@part(forceinline=True)
def _forward_group(j, count, carried, paired, a, factors, b, h, place, sign, behind, reset, streamed):
    """A step of a group of lanes; gives what goes on."""
    factor, term = load_lanes(a, factors + j, count), load_lanes(b, place + j, count)
    state, onward = step_of(paired, factor, sign, carried, term, behind, reset)
    put_lanes(h, place + j, count, state, streamed)
    return onward


@part(forceinline=True)
def _forward_ask(left, right, a, factors, b, h, place, streamed):
    """Ask for the lines of a step that comes later."""
    for j in range(left, right, GROUP):
        lanes_will_be_read(a, factors + j)
        lanes_will_be_read(b, place + j)
        lanes_will_be_written(h, place + j, not streamed)


@part()
def _forward_walk_group(
    left, count, paired, a, factors, factors_apart, b, place, apart, steps, h, carried, sign, resets, mark,
    reset_apart, behind, streamed,
):  # fmt: skip
    """So many steps of one group of lanes, `apart` from one another."""
    lanes, is_marked = load_lanes(carried, left, count), resets.size > 0
    factors_ahead, ahead = ahead_of(a, carried.size, factors_apart), ahead_of(b, carried.size, apart)
    for _ in range(steps):
        reset = is_marked and resets[mark] != 0
        _forward_ask(left, left + GROUP, a, factors + factors_ahead, b, h, place + ahead, streamed)
        lanes = _forward_group(
            left, count, lanes, paired, a, factors, b, h, place, sign, behind, reset, streamed
        )
        factors, place, mark = factors + factors_apart, place + apart, mark + reset_apart


@part()
def _forward_walk_row(
    left, right, paired, a, factors, factors_apart, b, place, apart, steps, h, carried, sign, resets, mark,
    reset_apart, behind, streamed,
):  # fmt: skip
    """So many steps of some columns."""
    is_marked, full = resets.size > 0, left + (right - left) // GROUP * GROUP
    rest = right - full
    factors_ahead, ahead = ahead_of(a, carried.size, factors_apart), ahead_of(b, carried.size, apart)
    for _ in range(steps):
        reset = is_marked and resets[mark] != 0
        _forward_ask(left, right, a, factors + factors_ahead, b, h, place + ahead, streamed)
        for j in range(left, full, GROUP):
            lanes = load_lanes(carried, j, None)
            lanes = _forward_group(
                j, None, lanes, paired, a, factors, b, h, place, sign, behind, reset, streamed
            )
            put_lanes(carried, j, None, lanes, False)
        if rest:
            lanes = load_lanes(carried, full, rest)
            lanes = _forward_group(
                full, rest, lanes, paired, a, factors, b, h, place, sign, behind, reset, streamed
            )
            put_lanes(carried, full, rest, lanes, False)
        factors, place, mark = factors + factors_apart, place + apart, mark + reset_apart


@part()
def _forward_walk_four(
    left, paired, a, factors, factors_apart, b, place, apart, steps, h, carried, sign, resets, mark,
    reset_apart, behind, streamed,
):  # fmt: skip
    """So many steps of four groups of lanes, of which all stay in registers."""
    second, third, fourth, is_marked = left + GROUP, left + 2 * GROUP, left + 3 * GROUP, resets.size > 0
    w, x = load_lanes(carried, left, None), load_lanes(carried, second, None)
    y, z = load_lanes(carried, third, None), load_lanes(carried, fourth, None)
    factors_ahead, ahead = ahead_of(a, carried.size, factors_apart), ahead_of(b, carried.size, apart)
    for _ in range(steps):
        reset = is_marked and resets[mark] != 0
        _forward_ask(left, fourth + GROUP, a, factors + factors_ahead, b, h, place + ahead, streamed)
        w = _forward_group(left, None, w, paired, a, factors, b, h, place, sign, behind, reset, streamed)
        x = _forward_group(second, None, x, paired, a, factors, b, h, place, sign, behind, reset, streamed)
        y = _forward_group(third, None, y, paired, a, factors, b, h, place, sign, behind, reset, streamed)
        z = _forward_group(fourth, None, z, paired, a, factors, b, h, place, sign, behind, reset, streamed)
        factors, place, mark = factors + factors_apart, place + apart, mark + reset_apart


_forward_walk = walk_of(_forward_walk_row, _forward_walk_group, _forward_walk_four)


@tasks_of
@part()
def _forward_task(
    task, paired, cuts, a, b, start, lengths, resets, h, batch, steps, width, a_samples, a_steps,
    reset_samples, chunk, sign, descending, behind, streamed,
):  # fmt: skip
    k, sample, begin, live, end, left, right = task_of(task, cuts, lengths, batch, steps, width, chunk)
    carried = start[(k * batch + sample) * width : (k * batch + sample + 1) * width].copy()
    factor, factor_apart, place, apart, mark, mark_apart = rows_of_walk(
        sample, begin, live, descending, batch, steps, width, a_samples, a_steps, reset_samples
    )
    former = flush_denormals()
    _forward_walk(
        left, right, paired, a, factor, factor_apart, b, place, apart, live - begin, h, carried, sign, resets,
        mark, mark_apart, behind, streamed,
    )  # fmt: skip
    restore_denormals(former)
    clear_rows(h, sample * steps + live, sample * steps + end, np.uint64(width), left, right)


@kernel(launch)
@compiled()
def linear_scan_forward(
    a, b, start, lengths, resets, wanted, h, batch, steps, width, a_samples, a_steps, reset_samples, chunk,
    chunks, paired, conjugate, descending, behind, guarded,
):  # fmt: skip
    if guarded and wanted[0] == 0:
        return
    walks, sign = chunks * batch, a.dtype.type(-1 if conjugate else 1)
    cuts, together = shares_of(walks, width, h.size)
    streamed = is_streamed(h, np.uint64(width), LEAST_STREAMED)
    arguments = (
        cuts, a, b, start, lengths, resets, h, batch, steps, width, a_samples, a_steps, reset_samples, chunk,
        sign, descending, behind, streamed,
    )  # fmt: skip
    if paired:
        _forward_task(walks * cuts, together, (True, *arguments))
    else:
        _forward_task(walks * cuts, together, (None, *arguments))


# ---- linear_scan_backward ----


@part(forceinline=True)
def _backward_group(
    j, count, carried, paired, a, factors, prior, former, gradient, place, by_b, by_a, summed, sign, reset,
    each, streamed,
):  # fmt: skip
    """A step of a group of lanes; gives what goes on."""
    factor, term = load_lanes(a, factors + j, count), load_lanes(gradient, place + j, count)
    g, onward = step_of(paired, factor, sign, carried, term, True, reset)
    by_factor = times(paired, load_lanes(prior, former + j, count), sign, g)
    if reset:
        by_factor = number(g, 0.0)
    put_lanes(by_b, place + j, count, g, streamed)
    put_or_sum(by_a, place + j, summed, j, count, by_factor, each, streamed)
    return onward


@part(forceinline=True)
def _backward_ask(left, right, a, factors, prior, former, gradient, place, by_b, by_a, each, streamed):
    """Ask for the lines of a step that comes later."""
    for j in range(left, right, GROUP):
        lanes_will_be_read(a, factors + j)
        lanes_will_be_read(prior, former + j)
        lanes_will_be_read(gradient, place + j)
        lanes_will_be_written(by_b, place + j, not streamed)
        lanes_will_be_written(by_a, place + j, each & (not streamed))


@part()
def _backward_walk_group(
    left, count, paired, a, factors, factors_apart, prior, former, gradient, place, apart, steps, by_b, by_a,
    summed, carried, sign, resets, mark, reset_apart, each, streamed,
):  # fmt: skip
    """So many steps of one group of lanes, `apart` from one another; `prior` has the state before each."""
    lanes, is_marked = load_lanes(carried, left, count), resets.size > 0
    factors_ahead, ahead = ahead_of(a, carried.size, factors_apart), ahead_of(gradient, carried.size, apart)
    for _ in range(steps):
        reset = is_marked and resets[mark] != 0
        _backward_ask(
            left, left + GROUP, a, factors + factors_ahead, prior, former + ahead, gradient, place + ahead,
            by_b, by_a, each, streamed,
        )  # fmt: skip
        lanes = _backward_group(
            left, count, lanes, paired, a, factors, prior, former, gradient, place, by_b, by_a, summed, sign,
            reset, each, streamed,
        )  # fmt: skip
        factors, former, place = factors + factors_apart, former + apart, place + apart
        mark += reset_apart
    put_lanes(carried, left, count, lanes, False)


@part()
def _backward_walk_row(
    left, right, paired, a, factors, factors_apart, prior, former, gradient, place, apart, steps, by_b, by_a,
    summed, carried, sign, resets, mark, reset_apart, each, streamed,
):  # fmt: skip
    """So many steps of some columns."""
    is_marked, full = resets.size > 0, left + (right - left) // GROUP * GROUP
    rest = right - full
    factors_ahead, ahead = ahead_of(a, carried.size, factors_apart), ahead_of(gradient, carried.size, apart)
    for _ in range(steps):
        reset = is_marked and resets[mark] != 0
        _backward_ask(
            left, right, a, factors + factors_ahead, prior, former + ahead, gradient, place + ahead, by_b,
            by_a, each, streamed,
        )  # fmt: skip
        for j in range(left, full, GROUP):
            lanes = _backward_group(
                j, None, load_lanes(carried, j, None), paired, a, factors, prior, former, gradient, place,
                by_b, by_a, summed, sign, reset, each, streamed,
            )  # fmt: skip
            put_lanes(carried, j, None, lanes, False)
        if rest:
            lanes = _backward_group(
                full, rest, load_lanes(carried, full, rest), paired, a, factors, prior, former, gradient,
                place, by_b, by_a, summed, sign, reset, each, streamed,
            )  # fmt: skip
            put_lanes(carried, full, rest, lanes, False)
        factors, former, place = factors + factors_apart, former + apart, place + apart
        mark += reset_apart


@part()
def _backward_walk_four(
    left, paired, a, factors, factors_apart, prior, former, gradient, place, apart, steps, by_b, by_a, summed,
    carried, sign, resets, mark, reset_apart, each, streamed,
):  # fmt: skip
    """So many steps of four groups of lanes, of which all stay in registers."""
    second, third, fourth, is_marked = left + GROUP, left + 2 * GROUP, left + 3 * GROUP, resets.size > 0
    w, x = load_lanes(carried, left, None), load_lanes(carried, second, None)
    y, z = load_lanes(carried, third, None), load_lanes(carried, fourth, None)
    factors_ahead, ahead = ahead_of(a, carried.size, factors_apart), ahead_of(gradient, carried.size, apart)
    for _ in range(steps):
        reset = is_marked and resets[mark] != 0
        _backward_ask(
            left, fourth + GROUP, a, factors + factors_ahead, prior, former + ahead, gradient, place + ahead,
            by_b, by_a, each, streamed,
        )  # fmt: skip
        w = _backward_group(
            left, None, w, paired, a, factors, prior, former, gradient, place, by_b, by_a, summed, sign,
            reset, each, streamed,
        )  # fmt: skip
        x = _backward_group(
            second, None, x, paired, a, factors, prior, former, gradient, place, by_b, by_a, summed, sign,
            reset, each, streamed,
        )  # fmt: skip
        y = _backward_group(
            third, None, y, paired, a, factors, prior, former, gradient, place, by_b, by_a, summed, sign,
            reset, each, streamed,
        )  # fmt: skip
        z = _backward_group(
            fourth, None, z, paired, a, factors, prior, former, gradient, place, by_b, by_a, summed, sign,
            reset, each, streamed,
        )  # fmt: skip
        factors, former, place = factors + factors_apart, former + apart, place + apart
        mark += reset_apart
    put_lanes(carried, left, None, w, False)
    put_lanes(carried, second, None, x, False)
    put_lanes(carried, third, None, y, False)
    put_lanes(carried, fourth, None, z, False)


_backward_walk = walk_of(_backward_walk_row, _backward_walk_group, _backward_walk_four)


@tasks_of
@part()
def _backward_task(
    task, paired, cuts, a, h, initial, gradient, start, lengths, resets, by_b, by_a, by_initial, batch, steps,
    width, a_samples, a_steps, reset_samples, chunk, chunks, sign, descending, each, streamed,
):  # fmt: skip
    k, sample, begin, live, end, left, right = task_of(task, cuts, lengths, batch, steps, width, chunk)
    carried = start[(k * batch + sample) * width : (k * batch + sample + 1) * width].copy()
    summed = np.zeros(0 if each else width, a.dtype)
    last = 0 if descending else max(lengths[sample] - 1, 0)
    ends_here, count = last // chunk == k, live - begin
    factor, factor_apart, place, apart, mark, mark_apart = rows_of_walk(
        sample, begin, live, descending, batch, steps, width, a_samples, a_steps, reset_samples
    )
    inner = np.uint64(count - 1 if ends_here and count else count)
    former = flush_denormals()
    _backward_walk(
        left, right, paired, a, factor, factor_apart, h, place + apart, gradient, place, apart, inner, by_b,
        by_a, summed, carried, sign, resets, mark, mark_apart, each, streamed,
    )  # fmt: skip
    _backward_walk(
        left, right, paired, a, factor + inner * factor_apart, factor_apart, initial,
        np.uint64(sample * width), gradient, place + inner * apart, apart, np.uint64(count) - inner, by_b,
        by_a, summed, carried, sign, resets, mark + inner * mark_apart, mark_apart, each, streamed,
    )  # fmt: skip
    restore_denormals(former)
    clear_rows(by_b, sample * steps + live, sample * steps + end, np.uint64(width), left, right)
    if each:
        clear_rows(by_a, sample * steps + live, sample * steps + end, np.uint64(width), left, right)
    else:
        for j in range(left, right):
            by_a[np.uint64((sample * chunks + k) * width) + j] = summed[j]
    if ends_here:
        for j in range(left, right):
            by_initial[np.uint64(sample * width) + j] = carried[j]


@kernel(launch)
@compiled()
def linear_scan_backward(
    a, h, initial, gradient, start, lengths, resets, wanted, by_b, by_a, by_initial, batch, steps, width,
    a_samples, a_steps, reset_samples, chunk, chunks, paired, conjugate, descending, each, guarded,
):  # fmt: skip
    if guarded and wanted[0] == 0:
        return
    walks, sign = chunks * batch, a.dtype.type(-1 if conjugate else 1)
    cuts, together = shares_of(walks, width, by_b.size)
    streamed = is_streamed(by_b, np.uint64(width), LEAST_STREAMED)
    streamed = streamed and (not each or is_streamed(by_a, np.uint64(width), LEAST_STREAMED))
    arguments = (
        cuts, a, h, initial, gradient, start, lengths, resets, by_b, by_a, by_initial, batch, steps, width,
        a_samples, a_steps, reset_samples, chunk, chunks, sign, descending, each, streamed,
    )  # fmt: skip
    if paired:
        _backward_task(walks * cuts, together, (True, *arguments))
    else:
        _backward_task(walks * cuts, together, (None, *arguments))


# ---- linear_scan_reduce ----


@part(forceinline=True)
def _reduce_group(j, count, total, carried, paired, a, factors, b, place, sign, behind, reset):
    """A step of a group of lanes: the product, and what goes on of the end."""
    factor, term = load_lanes(a, factors + j, count), load_lanes(b, place + j, count)
    _, onward = step_of(paired, factor, sign, carried, term, behind, reset)
    return (number(factor, 0.0) if reset else times(paired, factor, sign, total)), onward


@part(forceinline=True)
def _reduce_ask(left, right, a, factors, b, place):
    """Ask for the lines of a step that comes later."""
    for j in range(left, right, GROUP):
        lanes_will_be_read(a, factors + j)
        lanes_will_be_read(b, place + j)


@part()
def _reduce_walk_group(
    left, count, paired, a, factors, factors_apart, b, place, apart, steps, width, product, end, at, sign,
    resets, mark, reset_apart, behind,
):  # fmt: skip
    """So many steps of one group of lanes, `apart` from one another."""
    is_marked = resets.size > 0
    total, carried = load_lanes(product, at + left, count), load_lanes(end, at + left, count)
    factors_ahead, ahead = ahead_of(a, width, factors_apart), ahead_of(b, width, apart)
    for _ in range(steps):
        reset = is_marked and resets[mark] != 0
        _reduce_ask(left, left + GROUP, a, factors + factors_ahead, b, place + ahead)
        total, carried = _reduce_group(
            left, count, total, carried, paired, a, factors, b, place, sign, behind, reset
        )
        factors, place, mark = factors + factors_apart, place + apart, mark + reset_apart
    put_lanes(product, at + left, count, total, False)
    put_lanes(end, at + left, count, carried, False)


@part()
def _reduce_walk_row(
    left, right, paired, a, factors, factors_apart, b, place, apart, steps, width, product, end, at, sign,
    resets, mark, reset_apart, behind,
):  # fmt: skip
    """So many steps of some columns, whose groups of lanes go through each step one after another: rows are
    read as they lie in memory, and what is carried stays in the nearest cache."""
    is_marked, rest = resets.size > 0, (right - left) % GROUP
    factors_ahead, ahead = ahead_of(a, width, factors_apart), ahead_of(b, width, apart)
    for _ in range(steps):
        reset = is_marked and resets[mark] != 0
        _reduce_ask(left, right, a, factors + factors_ahead, b, place + ahead)
        for j in range(left, right - rest, GROUP):
            total, carried = load_lanes(product, at + j, None), load_lanes(end, at + j, None)
            total, carried = _reduce_group(
                j, None, total, carried, paired, a, factors, b, place, sign, behind, reset
            )
            put_lanes(product, at + j, None, total, False)
            put_lanes(end, at + j, None, carried, False)
        if rest:
            j = right - rest
            total, carried = load_lanes(product, at + j, rest), load_lanes(end, at + j, rest)
            total, carried = _reduce_group(
                j, rest, total, carried, paired, a, factors, b, place, sign, behind, reset
            )
            put_lanes(product, at + j, rest, total, False)
            put_lanes(end, at + j, rest, carried, False)
        factors, place, mark = factors + factors_apart, place + apart, mark + reset_apart


@part()
def _reduce_walk_four(
    left, paired, a, factors, factors_apart, b, place, apart, steps, width, product, end, at, sign, resets,
    mark, reset_apart, behind,
):  # fmt: skip
    """So many steps of four groups of lanes, of which all stay in registers."""
    second, third, fourth, is_marked = left + GROUP, left + 2 * GROUP, left + 3 * GROUP, resets.size > 0
    w, w_end = load_lanes(product, at + left, None), load_lanes(end, at + left, None)
    x, x_end = load_lanes(product, at + second, None), load_lanes(end, at + second, None)
    y, y_end = load_lanes(product, at + third, None), load_lanes(end, at + third, None)
    z, z_end = load_lanes(product, at + fourth, None), load_lanes(end, at + fourth, None)
    factors_ahead, ahead = ahead_of(a, width, factors_apart), ahead_of(b, width, apart)
    for _ in range(steps):
        reset = is_marked and resets[mark] != 0
        _reduce_ask(left, fourth + GROUP, a, factors + factors_ahead, b, place + ahead)
        w, w_end = _reduce_group(left, None, w, w_end, paired, a, factors, b, place, sign, behind, reset)
        x, x_end = _reduce_group(second, None, x, x_end, paired, a, factors, b, place, sign, behind, reset)
        y, y_end = _reduce_group(third, None, y, y_end, paired, a, factors, b, place, sign, behind, reset)
        z, z_end = _reduce_group(fourth, None, z, z_end, paired, a, factors, b, place, sign, behind, reset)
        factors, place, mark = factors + factors_apart, place + apart, mark + reset_apart
    put_lanes(product, at + left, None, w, False)
    put_lanes(end, at + left, None, w_end, False)
    put_lanes(product, at + second, None, x, False)
    put_lanes(end, at + second, None, x_end, False)
    put_lanes(product, at + third, None, y, False)
    put_lanes(end, at + third, None, y_end, False)
    put_lanes(product, at + fourth, None, z, False)
    put_lanes(end, at + fourth, None, z_end, False)


_reduce_walk = walk_of(_reduce_walk_row, _reduce_walk_group, _reduce_walk_four)


@tasks_of
@part()
def _reduce_task(
    task, paired, cuts, a, b, lengths, resets, product, end, batch, steps, width, a_samples, a_steps,
    reset_samples, chunk, parts, sign, descending, behind,
):  # fmt: skip
    k, sample, begin, live, _, left, right = task_of(task, cuts, lengths, batch, steps, width, chunk)
    at = np.uint64((k * batch + sample) * width)
    for j in range(left, right):
        end[at + j], product[at + j] = 0, 1 if j % np.uint64(parts) == 0 else 0
    factor, factor_apart, place, apart, mark, mark_apart = rows_of_walk(
        sample, begin, live, descending, batch, steps, width, a_samples, a_steps, reset_samples
    )
    former = flush_denormals()
    _reduce_walk(
        left, right, paired, a, factor, factor_apart, b, place, apart, live - begin, width, product, end,
        at, sign, resets, mark, mark_apart, behind,
    )  # fmt: skip
    restore_denormals(former)


@kernel(launch)
@compiled()
def linear_scan_reduce(
    a, b, lengths, resets, product, end, batch, steps, width, a_samples, a_steps, reset_samples, chunk,
    chunks, paired, conjugate, descending, behind,
):  # fmt: skip
    walks, sign = chunks * batch, a.dtype.type(-1 if conjugate else 1)
    cuts, together = shares_of(walks, width, b.size)
    arguments = (
        cuts, a, b, lengths, resets, product, end, batch, steps, width, a_samples, a_steps, reset_samples,
        chunk, 2 if paired else 1, sign, descending, behind,
    )  # fmt: skip
    if paired:
        _reduce_task(walks * cuts, together, (True, *arguments))
    else:
        _reduce_task(walks * cuts, together, (None, *arguments))


# ---- linear_scan_carry ----


@kernel(lambda s: one_thread_per(s["plane"] // (2 if s["paired"] else 1)))
@compiled()
def linear_scan_carry(product, end, first, start, chunks, plane, paired, descending):
    for k in range(chunks):
        place = (chunks - 1 - k if descending else k) * plane
        former = place + plane if descending else place - plane
        for i in range(plane):
            if k == 0:
                start[place + i] = first[i]
            elif not paired:
                start[place + i] = product[former + i] * start[former + i] + end[former + i]
            elif i % 2 == 0:
                a, b = product[former + i], product[former + i + 1]
                x, y = start[former + i], start[former + i + 1]
                start[place + i] = a * x - b * y + end[former + i]
                start[place + i + 1] = a * y + b * x + end[former + i + 1]
