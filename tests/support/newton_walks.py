"""Random walks for Newton's forward pass with forced chunks."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from timescan_cases import make_walk

from bppsa_cupy.devices import get_device
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.timescan import Walk, serial
from bppsa_cupy.timescan.forward import ChunkedForward


class Drawn(NamedTuple):
    """A walk of any cell, expanding or not, small or beyond the range, walked serially; and how Newton's
    iteration is to walk it."""

    cell: str
    walk: Walk
    chunk: int


def draw_walk(seed: int, index: int, cells: tuple[str, ...] = tuple(FORMS)) -> Drawn:
    """Walk `index` of a run with `seed`: to 300 steps, weights of a gain of 0.1 to 32. One walk in twenty has
    inputs of some 1e30, one in three expands over many chunks."""
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
    return Drawn(cell, walk, chunk)


def assert_is_serial(drawn: Drawn) -> None:
    """Newton's iteration gives every bit of states, gates and last states that the serial pass gives."""
    walk = drawn.walk
    fresh = {name: np.full_like(getattr(walk, name), 7) for name in ("state", "gates", "final")}
    ours = replace(walk, **fresh)
    ChunkedForward(get_device("host"), ours, drawn.chunk)()
    inside = np.arange(walk.size.steps)[:, None, None] < walk.lengths
    np.testing.assert_array_equal(ours.state, walk.state)
    np.testing.assert_array_equal(ours.final, walk.final)
    np.testing.assert_array_equal(ours.gates * inside, walk.gates * inside)
