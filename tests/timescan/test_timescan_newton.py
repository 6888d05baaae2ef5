"""Forward in time by Newton's iteration: the serial pass's states, or the serial pass itself."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from newton_cases import Watching, assert_same_walk, blank
from timescan_cases import CELLS, make_walk

from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import DeviceError
from bppsa_cupy.processors import models
from bppsa_cupy.timescan.forward import choose_forward
from bppsa_cupy.timescan.newton import NewtonForward


def choose(walk, *method):
    """The chunk length of a walk's forward pass on the host, and why."""
    return choose_forward(get_device("host"), walk.size, *method)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("ragged, reverse", [(False, False), (True, False), (True, True), (False, True)])
def test_it_converges_to_the_serial_pass(cell, ragged, reverse, device):
    for steps, hidden, batch in ((37, 4, 3), (20, 7, 1), (1, 2, 2)):
        walk = make_walk(
            device, CELLS[cell], steps, hidden, batch, radius=0.7, ragged=ragged, reverse=reverse
        )
        for chunk in (1, 5, -(-steps // 2), steps):
            ours = blank(device, walk)
            newton = NewtonForward(device, ours, chunk)
            newton()
            assert newton.report.converged and newton.report.chunks == -(-steps // chunk)
            assert newton.report.error == 0, "the tolerance is too low for boundaries that do not settle"
            assert newton.report.tolerance == 16 * np.finfo(walk.state.dtype).eps
            assert (newton.report.chunks > 1) == (newton.report.iterations > 0)
            assert_same_walk(ours, walk, 1e-12)


def test_few_iterations_do_where_the_network_contracts():
    host = get_device("host")
    walk = make_walk(host, CELLS["tanh"], 2000, 8, 2, radius=0.8)
    newton = NewtonForward(host, blank(host, walk), 50)
    newton()
    assert newton.report.converged and newton.report.iterations <= 6


def test_longer_chunks_need_no_more_iterations_than_single_steps():
    host = get_device("host")
    walk = make_walk(host, CELLS["gru"], 120, 6, 2, radius=1.2)
    iterations = []
    for chunk in (1, 20):
        newton = NewtonForward(host, blank(host, walk), chunk, iterations=120)
        newton()
        assert newton.report.converged
        iterations.append(newton.report.iterations)
    assert iterations[1] <= iterations[0]


def test_the_diagonal_alone_converges_more_slowly_to_the_same():
    host = get_device("host")
    walk = make_walk(host, CELLS["gru"], 60, 5, 2, radius=0.6)
    reports = []
    for diagonal in (False, True):
        ours = blank(host, walk)
        newton = NewtonForward(host, ours, 5, diagonal=diagonal, iterations=30)
        newton()
        assert_same_walk(ours, walk, 1e-12)
        reports.append(newton.report)
    assert all(report.converged for report in reports)
    assert reports[0].iterations <= reports[1].iterations


@pytest.mark.parametrize("cell", ["tanh", "relu"])
def test_where_it_does_not_converge_the_serial_pass_is_taken(cell):
    """Chaotic for tanh; for ReLU states that leave the range."""
    host = get_device("host")
    walk = make_walk(host, CELLS[cell], 300, 12, 2, radius=6.0, dtype="float32")
    ours = blank(host, walk)
    newton = NewtonForward(host, ours, 10, iterations=5)
    newton()
    assert not newton.report.converged
    assert newton.report.iterations == 5 if cell == "tanh" else newton.report.iterations < 5
    assert "run serially" in str(newton.report)
    np.testing.assert_array_equal(ours.state, walk.state)
    np.testing.assert_array_equal(ours.final, walk.final)


def test_nan_in_the_input_goes_through():
    host = get_device("host")
    walk = make_walk(host, CELLS["tanh"], 30, 3, 2)
    walk.projected[10, 0, 1] = np.nan
    ours = blank(host, walk)
    newton = NewtonForward(host, ours, 5)
    newton()
    assert not newton.report.converged and newton.report.iterations == 1
    assert np.isfinite(ours.state[:, :, 0]).all() and np.isfinite(ours.state[:10]).all()
    assert np.isnan(ours.state[10:, 0, 1]).all()


def test_a_chaotic_network_converges_a_chunk_an_iteration_at_least():
    host = get_device("host")
    walk = make_walk(host, CELLS["tanh"], 60, 12, 2, radius=6.0)
    ours = blank(host, walk)
    newton = NewtonForward(host, ours, 20, iterations=50)
    newton()
    assert newton.report.converged
    # Rounding grows with the Jacobians' products, which is what chaos means.
    np.testing.assert_allclose(ours.state[:20], walk.state[:20], rtol=0, atol=1e-12)


def test_auto_takes_the_serial_pass_on_the_host():
    host = get_device("host")
    walk = make_walk(host, CELLS["tanh"], 500, 4, 1)
    assert choose(walk)[0] == 0
    assert choose(walk, "serial") == (0, "as asked for")
    chunk, reason = choose(walk, "newton")
    assert 0 < chunk < 500 and reason == "as asked for"


def test_auto_takes_newton_where_it_is_predicted_to_win(monkeypatch):
    host = get_device("host")
    walk = make_walk(host, CELLS["tanh"], 20000, 2, 1, dtype="float32", forward=False)
    monkeypatch.setitem(models.MODELS, "host", models.MODELS["cuda"])
    monkeypatch.setattr(type(host), "workers", 132)
    chunk, reason = choose(walk)
    assert chunk > 0 and "ms serially" in reason
    longer, reason = choose(walk, "newton", 500_000)
    assert longer > chunk and f"longer than {chunk} for want of memory" in reason
    assert choose(walk, "auto", 500_000)[0] in (0, longer)
    monkeypatch.setattr(type(host), "free_memory", lambda self: 1000)
    assert choose(walk)[0] == 0
    with pytest.raises(DeviceError, match=r"\d+ bytes, 1000 are free for it.*take forward_method='serial'"):
        choose(walk, "newton")


def test_corrections_are_halved_and_then_left_out_while_mismatches_grow():
    """Behind an undamped one, by which the error is told; nothing lies behind the last chunk."""
    device = Watching()
    walk = make_walk(device, CELLS["tanh"], 60, 8, 2, radius=4.0, size=0.1)
    NewtonForward(device, blank(device, walk), 2, iterations=12)()
    dampings = [damping for damping, _ in device.corrections]
    damped = [k for k, damping in enumerate(dampings) if damping != 1.0]
    assert damped and dampings[damped[0]] == 0.5 and 0.0 in dampings
    for before, after in pairwise(damped):
        assert dampings[after - 1] == 1.0
        if dampings[before] == 0.0 and after == before + 2:
            assert dampings[after] == 0.0, "until a mismatch is the least so far"
    assert not any(beyond for _, beyond in device.corrections)


def test_rounding_that_is_carried_on_ends_with_the_last_chunk():
    """Boundaries that move by a rounding for ever are judged by what becomes of roundings at each of them."""
    device = Watching()
    walk = make_walk(device, CELLS["tanh"], 200, 8, 2, radius=1.1, size=0.05, dtype="float32")
    newton = NewtonForward(device, blank(device, walk), 1, tolerance=1e-2)
    newton()
    assert newton.report.converged and 0 < newton.report.error < 1e-2
    assert not any(beyond for _, beyond in device.corrections)


def test_quasi_newton_corrects_by_the_diagonal_of_the_maps():
    """Once the error was told by the whole maps."""
    device = Watching()
    walk = make_walk(device, CELLS["lstm"], 12, 3, 2, radius=0.9)
    NewtonForward(device, blank(device, walk), 3, diagonal=True)()
    assert len(device.maps) > 2
    for whole, taken in zip(device.maps[:-1:2], device.maps[1::2], strict=True):
        np.testing.assert_array_equal(taken, whole * np.eye(6))
        assert np.any(taken != whole) and np.all(np.diagonal(taken, axis1=1, axis2=2) != 0)
