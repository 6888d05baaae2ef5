"""Going back through time by chunks: every chunk length gives the gradients of the serial pass."""

from __future__ import annotations

import numpy as np
import pytest
from marks import some
from timescan_cases import CELLS, QUICK, make_gradients, make_walk, run_scan, torch_gradients
from tolerances import assert_close

from bppsa_cupy.devices import Device, get_device


@pytest.mark.parametrize("cell", QUICK)
@pytest.mark.parametrize("ragged, reverse, per_step", [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1), (1, 1, 0)])
def test_every_chunk_length_gives_pytorchs_gradients(cell, ragged, reverse, per_step, device):
    for steps, hidden, batch in ((13, 4, 3), (9, 20, 1), (1, 3, 2)):
        walk = make_walk(
            device, CELLS[cell], steps, hidden, batch, ragged=bool(ragged), reverse=bool(reverse)
        )
        gradient, last = make_gradients(device, walk, bool(per_step))
        by_projected, by_initial = torch_gradients(walk, gradient, last)
        for chunk in (1, 4, 7, steps):
            delta, entering, scan = run_scan(device, walk, gradient, last, method="blelloch", chunk=chunk)
            assert scan.choice.chunks == (-(-steps // chunk))
            assert (scan.choice.method == "chunked") == (chunk < steps)
            rows = walk.size.cell.gates * hidden
            assert_close(delta[:, :rows], by_projected, 100 * steps, label=f"delta, chunks of {chunk}")
            assert_close(entering, by_initial, 100 * steps, label=f"entering, chunks of {chunk}")


@pytest.mark.parametrize("cell", QUICK)
@pytest.mark.parametrize("dtype", some("float64", long=["float32"]))
@pytest.mark.parametrize("hidden", [1, 20, 33, 64])
def test_any_width_gives_the_serial_gradients(cell, dtype, hidden, device: Device):
    walk = make_walk(device, CELLS[cell], 5, hidden, 2, dtype=dtype, ragged=True, reverse=hidden == 33)
    gradient, last = make_gradients(device, walk, True)
    expected = run_scan(device, walk, gradient, last, method="linear")
    actual = run_scan(device, walk, gradient, last, method="blelloch", chunk=2)
    assert (expected[2].choice.method, actual[2].choice.method) == ("serial", "chunked")
    for ours, theirs in zip(actual[:2], expected[:2], strict=True):
        assert_close(ours, theirs, 100 * hidden)


@pytest.mark.long
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("radius", [0.1, 0.9, 1.5, 2.0])
def test_float32_keeps_the_range_of_the_serial_pass(cell, radius):
    """Small inputs keep tanh's slope near 1, so that products of Jacobians grow as radius ** steps."""
    host, steps, wide = get_device("host"), 400, {}
    for dtype in ("float32", "float64"):
        walk = make_walk(host, CELLS[cell], steps, 6, 2, dtype=dtype, radius=radius, size=1e-3)
        walk.initial[...] *= 1e-3
        _, last = make_gradients(host, walk, False)
        last *= host.asarray(1e-30, dtype) if radius > 1 else 1
        wide[dtype] = [run_scan(host, walk, None, last, method="blelloch", chunk=c) for c in (steps, 50, 390)]
    serial, *chunked = wide["float32"]
    exact = wide["float64"][1][0]
    for delta, _, scan in chunked:
        finite = np.isfinite(serial[0])
        assert np.isfinite(delta[finite]).all()
        assert scan.by_chunks.reran or np.isfinite(delta).all()
        assert_close(delta[finite], serial[0][finite], 1e6)
        if finite.all():
            assert_close(delta, exact, 1e7)


def test_gradients_that_overflow_are_computed_serially_and_it_is_said():
    host = get_device("host")
    walk = make_walk(host, CELLS["tanh"], 2400, 5, 1, radius=2.0, size=0.0)
    walk.state[...] = 0
    _, last = make_gradients(host, walk, False)
    expected = run_scan(host, walk, None, last, method="linear")
    delta, entering, scan = run_scan(host, walk, None, last, method="blelloch", chunk=400)
    assert "run again serially" in scan.description
    np.testing.assert_array_equal(delta, expected[0])
    np.testing.assert_array_equal(entering, expected[1])


def test_a_scan_that_is_called_again_forgets_the_last_time():
    host = get_device("host")
    walk = make_walk(host, CELLS["tanh"], 9, 3, 2)
    gradient, last = make_gradients(host, walk, True)
    first = run_scan(host, walk, gradient, last, method="hybrid", chunk=2)
    again = first[2]
    last[...] = np.nan
    again()
    assert again.by_chunks.reran
    last[...] = 0
    again()
    assert "again" not in again.description
    serial = run_scan(host, walk, gradient, last, method="linear")[2]
    assert serial.description == "serial (as asked for)"
