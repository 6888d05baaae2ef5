"""What each chunk of a linear scan makes of the state that comes to it."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.scans.batched import GROUP
from bppsa_cupy.raw_kernels.twins.scans.linear_rows import (
    ahead_of,
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
from bppsa_cupy.raw_kernels.twins.simd.lanes import number
from bppsa_cupy.raw_kernels.twins.simd.pairs import times
from bppsa_cupy.raw_kernels.twins.simd.prefetch import lanes_will_be_read
from bppsa_cupy.raw_kernels.twins.threads.crew import tasks_of
from bppsa_cupy.system.compiled import compiled, part


@part(forceinline=True)
def _group(j, count, whole, carried, paired, a, factors, b, place, sign, behind, reset):
    """A step of a group of lanes: the product, and what goes on of the end."""
    factor, term = load_lanes(a, factors + j, count), load_lanes(b, place + j, count)
    _, onward = step_of(paired, factor, sign, carried, term, behind, reset)
    return (number(factor, 0.0) if reset else times(paired, factor, sign, whole)), onward


@part(forceinline=True)
def _ask(left, right, a, factors, b, place):
    """Ask for the lines of a step that comes later."""
    for j in range(left, right, GROUP):
        lanes_will_be_read(a, factors + j)
        lanes_will_be_read(b, place + j)


@part()
def _walk_group(
    left, count, paired, a, factors, factors_apart, b, place, apart, steps, width, product, end, at, sign,
    resets, mark, reset_apart, behind,
):  # fmt: skip
    """So many steps of one group of lanes, `apart` from one another."""
    is_marked = resets.size > 0
    whole, carried = load_lanes(product, at + left, count), load_lanes(end, at + left, count)
    factors_ahead, ahead = ahead_of(a, width, factors_apart), ahead_of(b, width, apart)
    for _ in range(steps):
        reset = is_marked and resets[mark] != 0
        _ask(left, left + GROUP, a, factors + factors_ahead, b, place + ahead)
        whole, carried = _group(
            left, count, whole, carried, paired, a, factors, b, place, sign, behind, reset
        )
        factors, place, mark = factors + factors_apart, place + apart, mark + reset_apart
    put_lanes(product, at + left, count, whole, False)
    put_lanes(end, at + left, count, carried, False)


@part()
def _walk_row(
    left, right, paired, a, factors, factors_apart, b, place, apart, steps, width, product, end, at, sign,
    resets, mark, reset_apart, behind,
):  # fmt: skip
    """So many steps of some columns, whose groups of lanes go through each step one after another: rows are
    read as they lie in memory, and what is carried stays in the nearest cache."""
    is_marked, rest = resets.size > 0, (right - left) % GROUP
    factors_ahead, ahead = ahead_of(a, width, factors_apart), ahead_of(b, width, apart)
    for _ in range(steps):
        reset = is_marked and resets[mark] != 0
        _ask(left, right, a, factors + factors_ahead, b, place + ahead)
        for j in range(left, right - rest, GROUP):
            whole, carried = load_lanes(product, at + j, None), load_lanes(end, at + j, None)
            whole, carried = _group(
                j, None, whole, carried, paired, a, factors, b, place, sign, behind, reset
            )
            put_lanes(product, at + j, None, whole, False)
            put_lanes(end, at + j, None, carried, False)
        if rest:
            j = right - rest
            whole, carried = load_lanes(product, at + j, rest), load_lanes(end, at + j, rest)
            whole, carried = _group(
                j, rest, whole, carried, paired, a, factors, b, place, sign, behind, reset
            )
            put_lanes(product, at + j, rest, whole, False)
            put_lanes(end, at + j, rest, carried, False)
        factors, place, mark = factors + factors_apart, place + apart, mark + reset_apart


@part()
def _walk_four(
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
        _ask(left, fourth + GROUP, a, factors + factors_ahead, b, place + ahead)
        w, w_end = _group(left, None, w, w_end, paired, a, factors, b, place, sign, behind, reset)
        x, x_end = _group(second, None, x, x_end, paired, a, factors, b, place, sign, behind, reset)
        y, y_end = _group(third, None, y, y_end, paired, a, factors, b, place, sign, behind, reset)
        z, z_end = _group(fourth, None, z, z_end, paired, a, factors, b, place, sign, behind, reset)
        factors, place, mark = factors + factors_apart, place + apart, mark + reset_apart
    put_lanes(product, at + left, None, w, False)
    put_lanes(end, at + left, None, w_end, False)
    put_lanes(product, at + second, None, x, False)
    put_lanes(end, at + second, None, x_end, False)
    put_lanes(product, at + third, None, y, False)
    put_lanes(end, at + third, None, y_end, False)
    put_lanes(product, at + fourth, None, z, False)
    put_lanes(end, at + fourth, None, z_end, False)


_walk = walk_of(_walk_row, _walk_group, _walk_four)


@part()
def _task(
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
    _walk(
        left, right, paired, a, factor, factor_apart, b, place, apart, live - begin, width, product, end,
        at, sign, resets, mark, mark_apart, behind,
    )  # fmt: skip
    restore_denormals(former)


_tasks = tasks_of(_task)


@compiled()
def linear_scan_reduce(
    a, b, lengths, resets, product, end, batch, steps, width, a_samples, a_steps, reset_samples, chunk,
    chunks, paired, conjugate, descending, behind,
):  # fmt: skip
    walks, sign = chunks * batch, a.dtype.type(-1 if conjugate else 1)
    cuts, together = shares_of(walks, width, b.size)
    given = (
        cuts, a, b, lengths, resets, product, end, batch, steps, width, a_samples, a_steps, reset_samples,
        chunk, 2 if paired else 1, sign, descending, behind,
    )  # fmt: skip
    if paired:
        _tasks(walks * cuts, together, (True, *given))
    else:
        _tasks(walks * cuts, together, (None, *given))


KERNEL = kernel(linear_scan_reduce, launch)
