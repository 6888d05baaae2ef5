"""Time scans through CudaDevice's Python, on a stand-in for CuPy whose kernels run on the emulator."""

from __future__ import annotations

import cupy_stub
import numpy as np
import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from newton_cases import blank
from timescan_cases import CELLS, make_gradients, make_walk
from timescan_runs import run
from tolerances import assert_close

from bppsa_cupy.timescan.chunked import TimeScan
from bppsa_cupy.timescan.forward import ChunkedForward


@pytest.mark.parametrize("cell", ["tanh", "gru"])
def test_backward_and_forward(cell, stub):
    walk = make_walk(stub, CELLS[cell], 7, 3, 2, dtype="float32", radius=0.5, ragged=True, reverse=True)
    gradient, last = make_gradients(stub, walk, True)
    serial = run(stub, walk, gradient, last, method="linear")
    chunked = run(stub, walk, gradient, last, method="blelloch", chunk=3)
    for ours, theirs in zip(chunked[:2], serial[:2], strict=True):
        assert_close(ours, theirs, 100)
    fresh = blank(stub, walk)
    newton = ChunkedForward(stub, fresh, 3)
    newton()
    assert newton.report.converged
    assert_close(stub.to_host(fresh.state), stub.to_host(walk.state), 100)


@pytest.mark.parametrize("cell", ["tanh", "gru"])
def test_a_way_back_by_chunks_waits_for_nothing_and_falls_back_by_itself(cell, stub, monkeypatch):
    walk = make_walk(stub, CELLS[cell], 7, 3, 2, dtype="float32")
    gradient, last = make_gradients(stub, walk, True)
    *_, scan = run(stub, walk, gradient, last, method="blelloch", chunk=3)
    delta = stub.empty_walk((7, walk.size.cell.deltas * 3, 2), "float32")
    entering = stub.empty_walk((walk.size.state, 2), "float32")
    scan = TimeScan(stub, walk, gradient, last, delta, entering, "blelloch", 3)
    finite = last.copy()
    for broken in (True, True, False, False):
        last[...] = np.inf if broken else finite
        with np.errstate(invalid="ignore"):
            expected = run(stub, walk, gradient, last, method="linear")[:2]
            with monkeypatch.context() as patch:
                for waiting in (cupy_stub.Stream, cupy_stub.Event):
                    patch.setattr(waiting, "synchronize", None)
                scan()
        for ours, theirs in zip((delta, entering), expected, strict=True):
            if broken:  # to the bit: it is the serial walk's
                np.testing.assert_array_equal(stub.to_host(ours), theirs)
            else:
                assert_close(stub.to_host(ours), theirs, 100)
        stub.synchronize()
        assert scan.reran == broken == ("run again serially" in scan.description)
