"""The states of a linear scan, chunk by chunk, or those of its transpose."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.scans.batched import GROUP, is_streamed
from bppsa_cupy.raw_kernels.twins.scans.linear_rows import (
    LEAST_STREAMED,
    ahead_of,
    clear_rows,
    launch,
    put_lanes,
    rows_of_walk,
    shares_of,
    step_of,
    task_of,
    walk_of,
)
from bppsa_cupy.raw_kernels.twins.simd.denormals import flush_denormals, restore_denormals
from bppsa_cupy.raw_kernels.twins.simd.lane_blocks import load_lanes
from bppsa_cupy.raw_kernels.twins.simd.prefetch import lanes_will_be_read, lanes_will_be_written
from bppsa_cupy.raw_kernels.twins.threads.crew import tasks_of
from bppsa_cupy.system.compiled import compiled, part


@part(forceinline=True)
def _group(j, count, carried, paired, a, factors, b, h, place, sign, behind, reset, streamed):
    """A step of a group of lanes; gives what goes on."""
    factor, term = load_lanes(a, factors + j, count), load_lanes(b, place + j, count)
    state, onward = step_of(paired, factor, sign, carried, term, behind, reset)
    put_lanes(h, place + j, count, state, streamed)
    return onward


@part(forceinline=True)
def _ask(left, right, a, factors, b, h, place, streamed):
    """Ask for the lines of a step that comes later."""
    for j in range(left, right, GROUP):
        lanes_will_be_read(a, factors + j)
        lanes_will_be_read(b, place + j)
        lanes_will_be_written(h, place + j, not streamed)


@part()
def _walk_group(
    left, count, paired, a, factors, factors_apart, b, place, apart, steps, h, carried, sign, resets, mark,
    reset_apart, behind, streamed,
):  # fmt: skip
    """So many steps of one group of lanes, `apart` from one another."""
    lanes, is_marked = load_lanes(carried, left, count), resets.size > 0
    factors_ahead, ahead = ahead_of(a, carried.size, factors_apart), ahead_of(b, carried.size, apart)
    for _ in range(steps):
        reset = is_marked and resets[mark] != 0
        _ask(left, left + GROUP, a, factors + factors_ahead, b, h, place + ahead, streamed)
        lanes = _group(left, count, lanes, paired, a, factors, b, h, place, sign, behind, reset, streamed)
        factors, place, mark = factors + factors_apart, place + apart, mark + reset_apart


@part()
def _walk_row(
    left, right, paired, a, factors, factors_apart, b, place, apart, steps, h, carried, sign, resets, mark,
    reset_apart, behind, streamed,
):  # fmt: skip
    """So many steps of some columns."""
    is_marked, whole = resets.size > 0, left + (right - left) // GROUP * GROUP
    rest = right - whole
    factors_ahead, ahead = ahead_of(a, carried.size, factors_apart), ahead_of(b, carried.size, apart)
    for _ in range(steps):
        reset = is_marked and resets[mark] != 0
        _ask(left, right, a, factors + factors_ahead, b, h, place + ahead, streamed)
        for j in range(left, whole, GROUP):
            lanes = load_lanes(carried, j, None)
            lanes = _group(j, None, lanes, paired, a, factors, b, h, place, sign, behind, reset, streamed)
            put_lanes(carried, j, None, lanes, False)
        if rest:
            lanes = load_lanes(carried, whole, rest)
            lanes = _group(whole, rest, lanes, paired, a, factors, b, h, place, sign, behind, reset, streamed)
            put_lanes(carried, whole, rest, lanes, False)
        factors, place, mark = factors + factors_apart, place + apart, mark + reset_apart


@part()
def _walk_four(
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
        _ask(left, fourth + GROUP, a, factors + factors_ahead, b, h, place + ahead, streamed)
        w = _group(left, None, w, paired, a, factors, b, h, place, sign, behind, reset, streamed)
        x = _group(second, None, x, paired, a, factors, b, h, place, sign, behind, reset, streamed)
        y = _group(third, None, y, paired, a, factors, b, h, place, sign, behind, reset, streamed)
        z = _group(fourth, None, z, paired, a, factors, b, h, place, sign, behind, reset, streamed)
        factors, place, mark = factors + factors_apart, place + apart, mark + reset_apart


_walk = walk_of(_walk_row, _walk_group, _walk_four)


@part()
def _task(
    task, paired, cuts, a, b, start, lengths, resets, h, batch, steps, width, a_samples, a_steps,
    reset_samples, chunk, sign, descending, behind, streamed,
):  # fmt: skip
    k, sample, begin, live, end, left, right = task_of(task, cuts, lengths, batch, steps, width, chunk)
    carried = start[(k * batch + sample) * width : (k * batch + sample + 1) * width].copy()
    factor, factor_apart, place, apart, mark, mark_apart = rows_of_walk(
        sample, begin, live, descending, batch, steps, width, a_samples, a_steps, reset_samples
    )
    former = flush_denormals()
    _walk(
        left, right, paired, a, factor, factor_apart, b, place, apart, live - begin, h, carried, sign, resets,
        mark, mark_apart, behind, streamed,
    )  # fmt: skip
    restore_denormals(former)
    clear_rows(h, sample * steps + live, sample * steps + end, np.uint64(width), left, right)


_tasks = tasks_of(_task)


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
    given = (
        cuts, a, b, start, lengths, resets, h, batch, steps, width, a_samples, a_steps, reset_samples, chunk,
        sign, descending, behind, streamed,
    )  # fmt: skip
    if paired:
        _tasks(walks * cuts, together, (True, *given))
    else:
        _tasks(walks * cuts, together, (None, *given))


KERNEL = kernel(linear_scan_forward, launch)
