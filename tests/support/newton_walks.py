"""Random walks for Newton's forward pass with forced chunks, and whether one keeps what is promised."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from timescan_cases import make_walk

from bppsa_cupy.devices import get_device
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.timescan import Walk, serial
from bppsa_cupy.timescan.forward import MAXIMAL_ITERATIONS, NewtonForward, NewtonReport


class Drawn(NamedTuple):
    """A walk of any cell, expanding or not, small or beyond the range, walked serially; and how Newton's
    iteration is to walk it."""

    cell: str
    walk: Walk
    chunk: int
    diagonal: bool
    tolerance: float | None
    iterations: int


def draw_walk(seed: int, index: int, cells: tuple[str, ...] = tuple(FORMS)) -> Drawn:
    """Walk `index` of a run with `seed`: to 300 steps, weights of a gain of 0.1 to 32. One walk in twenty has
    inputs of some 1e30. One in three expands over many chunks and has a tolerance far above rounding, by
    which boundaries that do not settle are told."""
    rng = np.random.default_rng([seed, index])
    loose = rng.integers(3) == 0
    steps = int(rng.integers(100, 300) if loose else 2 * 150 ** rng.random())
    hidden, batch, chunk = (int(rng.integers(*span)) for span in ((1, 7), (1, 4), (1, 4 if loose else 10)))
    cell = str(rng.choice(cells))
    walk = make_walk(
        get_device("host"), FORMS[cell], steps, hidden, batch, dtype=("float32", "float64")[rng.integers(2)],
        ragged=bool(rng.integers(2)), reverse=bool(rng.integers(2)), forward=False,
    )  # fmt: skip
    gain = 10 ** (rng.uniform(0.1, 0.7) if loose else rng.uniform(-1, 1.5)) / np.sqrt(hidden)
    walk.weight_hh[...] = rng.standard_normal(walk.weight_hh.shape) * gain
    sizes = 10 ** rng.uniform(-3, 2, batch) * (1e30 if rng.integers(20) == 0 else 1)
    for array in (walk.projected, walk.initial):
        array[...] = rng.standard_normal(array.shape) * sizes
    if rng.integers(2):
        walk.bias_hh[...] = 0
    with np.errstate(over="ignore", invalid="ignore"):
        serial.forward(get_device("host"), walk)()
    return Drawn(
        cell, walk, chunk, bool(rng.integers(2)), 10 ** rng.uniform(-6, -1) if loose else None,
        100 if loose else MAXIMAL_ITERATIONS,
    )  # fmt: skip


def walk_by_newton(drawn: Drawn) -> tuple[Walk, NewtonReport]:
    """The same walk in arrays of its own, and how the iteration went."""
    walk = drawn.walk
    fresh = {name: np.full_like(getattr(walk, name), 7) for name in ("state", "gates", "final")}
    ours = replace(walk, **fresh)
    newton = NewtonForward(
        get_device("host"), ours, drawn.chunk, diagonal=drawn.diagonal, tolerance=drawn.tolerance,
        iterations=drawn.iterations,
    )  # fmt: skip
    newton()
    assert newton.report is not None
    return ours, newton.report


def excess(ours: Walk, walk: Walk, chunk: int, report: NewtonReport) -> float:
    """By how many times the error at a boundary exceeds what is promised of it, 0 to 1 where it does not.

    Where boundaries settled, and where the serial pass was taken, every bit of states, gates and last states
    must be the serial pass's: infinity where one is not.
    """
    if report.error == 0 or not report.converged:
        inside = np.arange(walk.size.steps)[:, None, None] < walk.lengths
        pairs = [
            (ours.state, walk.state),
            (ours.final, walk.final),
            (ours.gates * inside, walk.gates * inside),
        ]
        return 0.0 if all(np.array_equal(*pair, equal_nan=True) for pair in pairs) else float("inf")
    error = np.append(
        boundaries(ours, ours.state - walk.state, chunk), largest(ours, ours.final - walk.final)
    )
    size = np.append(boundaries(walk, walk.state, chunk), largest(walk, walk.final))
    return float((error / np.maximum(report.tolerance * size, np.finfo(walk.state.dtype).tiny)).max())


def boundaries(walk: Walk, values: np.ndarray, chunk: int) -> np.ndarray:
    """The largest element of each part of a state (h, c) and sample, at the boundaries of chunks."""
    steps = np.arange(walk.size.steps)[:, None]
    times = np.where(steps < walk.lengths, walk.lengths - 1 - steps, steps) if walk.reverse else steps
    in_steps = np.take_along_axis(values, np.broadcast_to(times, (len(steps), values.shape[2]))[:, None], 0)
    return largest(walk, in_steps[chunk - 1 :: chunk])


def largest(walk: Walk, values: np.ndarray) -> np.ndarray:
    """Of each part of the state (h, c) and sample, at each place of (..., rows, batch)."""
    parts = walk.size.cell.states, walk.size.hidden, walk.size.batch
    return np.abs(values).reshape(-1, *parts).max(-2)
