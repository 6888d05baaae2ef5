"""How Newton's iteration tells that it has converged: counts, errors, and how far rounding may have grown."""

from __future__ import annotations

import numpy as np
import pytest
from counting import CountingDevice
from newton_cases import Watching, assert_same_walk, blank
from timescan_cases import CELLS, make_walk

from bppsa_cupy.devices import get_device
from bppsa_cupy.timescan import newton, serial
from bppsa_cupy.timescan.newton import NewtonForward

HOST = get_device("host")


def run(walk, chunk, device=HOST, **how):
    iteration = NewtonForward(device, blank(device, walk), chunk, **how)
    iteration()
    return iteration


def test_one_chunk_takes_no_memory():
    device = CountingDevice()
    ours = blank(device, make_walk(device, CELLS["gru"], 9, 3, 2))
    taken = device.taken
    NewtonForward(device, ours, 9)
    assert device.taken == taken
    NewtonForward(device, ours, 8)
    assert device.taken > taken


def test_lengths_may_change_between_walks():
    walk = make_walk(HOST, CELLS["gru"], 30, 4, 3, radius=0.7)
    ours = blank(HOST, walk)
    iteration = NewtonForward(HOST, ours, 7)
    iteration()
    walk.lengths[...] = 30, 4, 13
    serial.forward(HOST, walk)()
    iteration()
    assert iteration.report.converged
    assert_same_walk(ours, walk, 1e-12)


def test_states_that_do_not_depend_on_the_chunk_before_take_two_iterations():
    """One to see them, one to see that they stay."""
    walk = make_walk(HOST, CELLS["tanh"], 20, 4, 2, forward=False)
    walk.weight_hh[...] = 0
    assert run(walk, 4).report.iterations == 2


def test_the_first_walk_tells_nothing_of_the_error():
    """However loose the tolerance is, a correction is judged by the walk behind it."""
    walk = make_walk(HOST, CELLS["tanh"], 60, 8, 2, radius=1.1)
    report = run(walk, 2, tolerance=10.0).report
    assert report.converged and report.iterations == 2


def test_boundaries_that_settle_are_within_no_tolerance_at_all():
    walk = make_walk(HOST, CELLS["tanh"], 40, 4, 2, radius=0.5)
    report = run(walk, 8, tolerance=0.0).report
    assert report.converged and report.error == 0


def test_an_undamped_correction_is_made_once_an_iteration():
    device = Watching()
    walk = make_walk(device, CELLS["tanh"], 60, 4, 2, radius=0.7)
    report = run(walk, 5, device).report
    assert report.converged and device.corrections == [(1.0, False)] * report.iterations


def test_a_mismatch_that_stays_is_damped_as_one_that_grows(monkeypatch):
    device = Watching()
    walk = make_walk(device, CELLS["tanh"], 20, 4, 2)
    iteration = NewtonForward(device, blank(device, walk), 5, iterations=5)
    monkeypatch.setattr(iteration, "_errors", lambda: (np.inf, 0.5))
    iteration()
    dampings = [damping for damping, _ in device.corrections]
    assert dampings == [1.0, 1.0, 0.5, 1.0, 0.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize("chunk, walks", [(1, 64), (2, 32), (4, 32)])
def test_boundaries_have_so_many_walks_to_settle(monkeypatch, chunk, walks):
    """As many as take 64 steps, and 32 at least."""
    walk = make_walk(HOST, CELLS["tanh"], 200, 8, 2, radius=1.1, size=0.05, dtype="float32")
    iteration, made = NewtonForward(HOST, blank(HOST, walk), chunk, tolerance=1e-2), []
    walked = iteration._walk_pieces
    monkeypatch.setattr(iteration, "_walk_pieces", lambda: made.append(1) or walked())
    iteration()
    assert iteration.report.converged and iteration.report.error > 0 and len(made) == walks


def carried(iteration, mismatch):
    """The largest step by the size of its state, of every boundary and sample, in float64: step_k =
    mismatch_k + J_k step_{k - 1}, with J = diag(1 - h²) W of chunks of one step."""
    pieces = iteration._pieces
    chunks, rows, batch = mismatch.shape
    ends = pieces.final.reshape(rows, chunks, batch).transpose(1, 0, 2).astype(float)
    weight, largest = pieces.weight_hh[0].astype(float), 0.0
    step = np.zeros((rows, batch))
    for end, missed in zip(ends, mismatch.astype(float), strict=True):
        step = missed + (1 - end**2) * (weight @ step)
        largest = max(largest, (abs(step).max(0) / abs(end).max(0)).max())
    return largest


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("margin", [0.0, 64.0])
@pytest.mark.parametrize("before", [0.0, 0.01])
def test_boundaries_that_move_are_judged_by_jacobians(monkeypatch, diagonal, margin, before):
    """Twice the correction, the larger one of the two walks, and what becomes of two roundings of each
    boundary's state, of either sign."""
    monkeypatch.setattr(newton, "MARGIN", margin)
    walk = make_walk(HOST, CELLS["tanh"], 200, 8, 2, radius=1.1, size=0.05, dtype="float32")
    iteration = run(walk, 1, tolerance=100.0, diagonal=diagonal)
    rows, chunks, batch = 8, 200, 2
    pieces = iteration._pieces
    starts, ends = (a.reshape(rows, chunks, batch).transpose(1, 0, 2) for a in (pieces.initial, pieces.final))
    left = iteration._left(starts, ends, before)
    missed = np.concatenate([ends[:-1] - starts[1:], np.zeros((1, rows, batch))])
    assert missed.any()
    signs = np.random.default_rng(0).choice([-2.0, 2.0], missed.shape)
    roundings = signs * np.finfo("float32").eps * abs(ends).max(1, keepdims=True)
    roundings[-1] = 0
    expected = 2 * max(before, carried(iteration, missed)) + margin * carried(iteration, roundings)
    assert 0 < left == pytest.approx(expected, rel=1e-3)
