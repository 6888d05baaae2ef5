"""Time scans through CudaDevice's Python, on a stand-in for CuPy whose kernels run on the emulator."""

from __future__ import annotations

import cupy_stub
import pytest
from test_cuda_device import no_device_is_kept, stub  # noqa: F401  fixtures
from test_timescan import run
from test_timescan_newton import blank
from timescan_cases import CELLS, make_gradients, make_walk
from tolerances import assert_close

from bppsa_cupy.timescan.newton import NewtonForward


@pytest.mark.parametrize("cell", ["tanh", "gru"])
def test_backward_and_forward(cell, stub):  # noqa: F811
    walk = make_walk(stub, CELLS[cell], 7, 3, 2, dtype="float32", radius=0.5, ragged=True, reverse=True)
    gradient, last = make_gradients(stub, walk, True)
    serial = run(stub, walk, gradient, last, method="linear")
    chunked = run(stub, walk, gradient, last, method="blelloch", chunk=3)
    for ours, theirs in zip(chunked[:2], serial[:2], strict=True):
        assert_close(ours, theirs, 100)
    fresh = blank(stub, walk)
    newton = NewtonForward(stub, fresh, 3)
    newton()
    assert newton.report.converged
    assert_close(stub.to_host(fresh.state), stub.to_host(walk.state), 100)


def test_an_iteration_is_a_graph_a_copy_and_a_launch(stub, monkeypatch):  # noqa: F811
    calls = []
    elementwise = cupy_stub.ndarray.__array_ufunc__
    monkeypatch.setattr(
        cupy_stub.ndarray,
        "__array_ufunc__",
        lambda *given, **options: calls.append(given[1]) or elementwise(*given, **options),
    )
    walk = make_walk(stub, CELLS["tanh"], 40, 6, 2, dtype="float32", radius=8.0)
    counted = []
    for iterations in (2, 4):
        newton = NewtonForward(stub, blank(stub, walk), 4, iterations=iterations)
        stub.launched.clear()
        calls.clear()
        newton()
        assert newton.report.iterations == iterations and not newton.report.converged
        assert stub.launched["newton_errors"] == stub.launched["newton_mismatch"] == iterations
        assert stub.launched["newton_advance"] == iterations - 1
        counted.append(len(calls))
    assert counted[0] == counted[1]
