"""The gradients of a linear scan, chunk by chunk: by its terms, its factors and its first state."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.scans.batched import GROUP, is_streamed
from bppsa_cupy.raw_kernels.twins.scans.linear_rows import (
    LEAST_STREAMED,
    ahead_of,
    clear_rows,
    launch,
    put_lanes,
    put_or_sum,
    rows_of_walk,
    shares_of,
    step_of,
    task_of,
    walk_of,
)
from bppsa_cupy.raw_kernels.twins.simd.denormals import flush_denormals, restore_denormals
from bppsa_cupy.raw_kernels.twins.simd.lane_blocks import load_lanes
from bppsa_cupy.raw_kernels.twins.simd.lanes import number
from bppsa_cupy.raw_kernels.twins.simd.pairs import times
from bppsa_cupy.raw_kernels.twins.simd.prefetch import lanes_will_be_read, lanes_will_be_written
from bppsa_cupy.raw_kernels.twins.threads.crew import tasks_of
from bppsa_cupy.system.compiled import compiled, part


@part(forceinline=True)
def _group(
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
def _ask(left, right, a, factors, prior, former, gradient, place, by_b, by_a, each, streamed):
    """Ask for the lines of a step that comes later."""
    for j in range(left, right, GROUP):
        lanes_will_be_read(a, factors + j)
        lanes_will_be_read(prior, former + j)
        lanes_will_be_read(gradient, place + j)
        lanes_will_be_written(by_b, place + j, not streamed)
        lanes_will_be_written(by_a, place + j, each & (not streamed))


@part()
def _walk_group(
    left, count, paired, a, factors, factors_apart, prior, former, gradient, place, apart, steps, by_b, by_a,
    summed, carried, sign, resets, mark, reset_apart, each, streamed,
):  # fmt: skip
    """So many steps of one group of lanes, `apart` from one another; `prior` has the state before each."""
    lanes, is_marked = load_lanes(carried, left, count), resets.size > 0
    factors_ahead, ahead = ahead_of(a, carried.size, factors_apart), ahead_of(gradient, carried.size, apart)
    for _ in range(steps):
        reset = is_marked and resets[mark] != 0
        _ask(
            left, left + GROUP, a, factors + factors_ahead, prior, former + ahead, gradient, place + ahead,
            by_b, by_a, each, streamed,
        )  # fmt: skip
        lanes = _group(
            left, count, lanes, paired, a, factors, prior, former, gradient, place, by_b, by_a, summed, sign,
            reset, each, streamed,
        )  # fmt: skip
        factors, former, place = factors + factors_apart, former + apart, place + apart
        mark += reset_apart
    put_lanes(carried, left, count, lanes, False)


@part()
def _walk_row(
    left, right, paired, a, factors, factors_apart, prior, former, gradient, place, apart, steps, by_b, by_a,
    summed, carried, sign, resets, mark, reset_apart, each, streamed,
):  # fmt: skip
    """So many steps of some columns."""
    is_marked, whole = resets.size > 0, left + (right - left) // GROUP * GROUP
    rest = right - whole
    factors_ahead, ahead = ahead_of(a, carried.size, factors_apart), ahead_of(gradient, carried.size, apart)
    for _ in range(steps):
        reset = is_marked and resets[mark] != 0
        _ask(
            left, right, a, factors + factors_ahead, prior, former + ahead, gradient, place + ahead, by_b,
            by_a, each, streamed,
        )  # fmt: skip
        for j in range(left, whole, GROUP):
            lanes = _group(
                j, None, load_lanes(carried, j, None), paired, a, factors, prior, former, gradient, place,
                by_b, by_a, summed, sign, reset, each, streamed,
            )  # fmt: skip
            put_lanes(carried, j, None, lanes, False)
        if rest:
            lanes = _group(
                whole, rest, load_lanes(carried, whole, rest), paired, a, factors, prior, former, gradient,
                place, by_b, by_a, summed, sign, reset, each, streamed,
            )  # fmt: skip
            put_lanes(carried, whole, rest, lanes, False)
        factors, former, place = factors + factors_apart, former + apart, place + apart
        mark += reset_apart


@part()
def _walk_four(
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
        _ask(
            left, fourth + GROUP, a, factors + factors_ahead, prior, former + ahead, gradient, place + ahead,
            by_b, by_a, each, streamed,
        )  # fmt: skip
        w = _group(
            left, None, w, paired, a, factors, prior, former, gradient, place, by_b, by_a, summed, sign,
            reset, each, streamed,
        )  # fmt: skip
        x = _group(
            second, None, x, paired, a, factors, prior, former, gradient, place, by_b, by_a, summed, sign,
            reset, each, streamed,
        )  # fmt: skip
        y = _group(
            third, None, y, paired, a, factors, prior, former, gradient, place, by_b, by_a, summed, sign,
            reset, each, streamed,
        )  # fmt: skip
        z = _group(
            fourth, None, z, paired, a, factors, prior, former, gradient, place, by_b, by_a, summed, sign,
            reset, each, streamed,
        )  # fmt: skip
        factors, former, place = factors + factors_apart, former + apart, place + apart
        mark += reset_apart
    put_lanes(carried, left, None, w, False)
    put_lanes(carried, second, None, x, False)
    put_lanes(carried, third, None, y, False)
    put_lanes(carried, fourth, None, z, False)


_walk = walk_of(_walk_row, _walk_group, _walk_four)


@part()
def _task(
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
    _walk(
        left, right, paired, a, factor, factor_apart, h, place + apart, gradient, place, apart, inner, by_b,
        by_a, summed, carried, sign, resets, mark, mark_apart, each, streamed,
    )  # fmt: skip
    _walk(
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


_tasks = tasks_of(_task)


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
    given = (
        cuts, a, h, initial, gradient, start, lengths, resets, by_b, by_a, by_initial, batch, steps, width,
        a_samples, a_steps, reset_samples, chunk, chunks, sign, descending, each, streamed,
    )  # fmt: skip
    if paired:
        _tasks(walks * cuts, together, (True, *given))
    else:
        _tasks(walks * cuts, together, (None, *given))


KERNEL = kernel(linear_scan_backward, launch)
