"""Scans over the boundaries of chunks: gradients backward in time, Newton's steps forward."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import MAXIMAL_GRID, LaunchShape, kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.scans.batched import one_block_per
from bppsa_cupy.system.compiled import compiled

#: As the texts have them: threads of a block; pieces of maps in shared memory, and the bytes of one where a
#: column has no more.
THREADS, STAGES, PIECE_BYTES = 256, 4, 8192


@compiled()
def scaled(value, exponent):
    """value times a power of two."""
    return math.ldexp(float(value), exponent)


def launch(s: Mapping[str, Any]) -> LaunchShape:
    """A block a walk: a thread an element to size 20 and for 40; for others THREADS, and pieces of maps."""
    size, itemsize = s["states"] * s["hidden"], s["itemsize"]
    rows = -(-size // 32) * 32
    grid = (min(s["batch"], MAXIMAL_GRID), 1, 1)
    if size <= 20 or size == 40:
        return LaunchShape(grid, (rows, 1, 1), 2 * rows * itemsize)
    columns = min(PIECE_BYTES // itemsize // size, size)
    columns = size if columns == size else columns - columns % 4 if columns >= 4 else 1
    piece, padded = (-(-count // 4) * 4 for count in (columns * size, size))
    reals = STAGES * piece + (2 + 1 + STAGES) * padded + THREADS
    shared = reals * itemsize + STAGES * padded * 4
    return LaunchShape(grid, (THREADS, 1, 1), shared)


# ---- chunk_scan ----


@kernel(launch)
@compiled(parallel=True)
def chunk_scan(maps, exponents, offsets, last, boundary, chunks, states, hidden, batch, affine):
    size = states * hidden
    plane = size * batch
    for w in prange(batch):
        values, sums = np.empty(size, last.dtype), np.empty(size, last.dtype)
        for i in range(size):
            values[i] = last[i * batch + w]
            boundary[(chunks - 1) * plane + i * batch + w] = values[i]
        for back in range(chunks - 1):
            k = chunks - 2 - back
            item = k * batch + w
            for i in range(size):
                sums[i] = offsets[k * plane + i * batch + w] if affine else 0
            for j in range(size):
                value = last.dtype.type(scaled(values[j], exponents[item * size + j]))
                for i in range(size):
                    sums[i] += maps[(item * size + j) * size + i] * value
            values, sums = sums, values
            for i in range(size):
                boundary[k * plane + i * batch + w] = values[i]


# ---- newton_scan ----


@kernel(launch)
@compiled(parallel=True)
def newton_scan(maps, exponents, mismatch, step, chunks, states, hidden, batch, damping):
    size = states * hidden
    for w in prange(batch):
        now, later = np.zeros(size, maps.dtype), np.empty(size, maps.dtype)
        for k in range(chunks):
            item = k * batch + w
            for j in range(size):
                total = maps.dtype.type(0)
                for i in range(size):
                    total += maps[(item * size + j) * size + i] * now[i]
                grown = maps.dtype.type(scaled(total, exponents[item * size + j]))
                place = (k * size + j) * batch + w
                later[j] = mismatch[place] + maps.dtype.type(damping) * grown
                step[place] = later[j]
            now, later = later, now


# ---- newton_mismatch ----


@kernel(lambda s: one_thread_per(s["chunks"] * s["rows"] * s["batch"]))
@compiled(parallel=True)
def newton_mismatch(starts, ends, mismatch, chunks, rows, batch):
    for chunk in prange(chunks):
        for row in range(rows):
            for lane in range(batch):
                place = (row * chunks + chunk) * batch + lane
                missed = ends[place] - starts[place + batch] if chunk + 1 < chunks else starts.dtype.type(0)
                mismatch[(chunk * rows + row) * batch + lane] = missed


# ---- newton_errors ----


@compiled()
def larger(a, b):
    """The larger one, NaN where one is."""
    return a if a > b or a != a else b


@kernel(lambda s: one_block_per(s["states"] * s["batch"], THREADS))
@compiled(parallel=True)
def newton_errors(ends, mismatch, step, errors, chunks, states, hidden, batch, tolerance, least):
    real = ends.dtype.type
    for item in prange(states * batch):
        state, lane = item // batch, item % batch
        error, missed, largest = real(0), real(0), real(0)
        for k in range(chunks):
            size, moved = real(0), real(0)
            for u in range(hidden):
                row = state * hidden + u
                place = (k * states * hidden + row) * batch + lane
                size = larger(abs(ends[(row * chunks + k) * batch + lane]), size)
                moved = larger(abs(step[place]), moved)
                missed = larger(abs(mismatch[place]), missed)
            allowed = real(tolerance) * size
            error = larger(moved / (real(least) if allowed < real(least) else allowed), error)
            largest = larger(size, largest)
        errors[item] = error
        errors[states * batch + item] = missed / (real(least) if largest < real(least) else largest)


# ---- newton_advance ----


@kernel(lambda s: one_thread_per((s["chunks"] - 1) * s["rows"] * s["batch"]))
@compiled(parallel=True)
def newton_advance(ends, mismatch, step, starts, chunks, rows, batch):
    for chunk in prange(chunks - 1):
        for row in range(rows):
            for lane in range(batch):
                place, item = (row * chunks + chunk) * batch + lane, (chunk * rows + row) * batch + lane
                carried = step[item] - mismatch[item]
                if carried - carried != 0:
                    carried = starts.dtype.type(0)
                starts[place + batch] = ends[place] + carried
