"""Time scans through CudaDevice's Python, on a stand-in for CuPy whose kernels run on the emulator."""

from __future__ import annotations

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
