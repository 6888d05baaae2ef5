"""Time scans through CudaDevice's Python, on a stand-in for CuPy with the emulator's kernels: by chunks,
by a launch a step, and with matmul in place of kernels."""

from __future__ import annotations

import cupy_stub
import numpy as np
import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from executors import make_device
from marks import some
from timescan_cases import CELLS, make_gradients, make_walk, random_walk, run_scan
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.devices import get_device, rules
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.timescan import WalkSize, serial
from bppsa_cupy.timescan.chunked import TimeScan
from bppsa_cupy.timescan.ways import serial_ways


@pytest.mark.parametrize("cell", some("tanh", long=["gru"]))
def test_a_way_back_by_chunks_waits_for_nothing_and_falls_back_by_itself(cell, stub, monkeypatch):
    walk = make_walk(stub, CELLS[cell], 7, 3, 2, dtype="float32")
    gradient, last = make_gradients(stub, walk, True)
    *_, scan = run_scan(stub, walk, gradient, last, method="blelloch", chunk=3)
    delta = stub.empty_walk((7, walk.size.cell.deltas * 3, 2), "float32")
    entering = stub.empty_walk((walk.size.state, 2), "float32")
    scan = TimeScan(stub, walk, gradient, last, delta, entering, "blelloch", 3)
    finite = last.copy()
    for broken in (True, True, False, False):
        last[...] = np.inf if broken else finite
        with np.errstate(invalid="ignore"):
            expected = run_scan(stub, walk, gradient, last, method="linear")[:2]
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
        assert broken == ("run again serially" in scan.description)


#: cell, H, T, B, reverse, ragged, per_step
CASES = [
    ("gru", 640, 2, 9, False, True, True),
    *(pytest.param(*case, marks=pytest.mark.long) for case in (
        ("lstm", 600, 2, 3, True, True, False),
        *((name, 300, 2, 2, True, True, True) for name in sorted(FORMS)),
        ("rnn_tanh", 1024, 3, 1, False, False, False), ("lstm", 900, 2, 1, False, False, True),
    )),
]  # fmt: skip


def passes(device, size, reverse, ragged, per_step):
    """What the second of two equal passes leaves, and what ran forward and back."""
    walk = random_walk(device, size, reverse, ragged, "float64")
    gradient, last = make_gradients(device, walk, per_step)
    delta = device.empty_walk((size.steps, size.cell.deltas * size.hidden, size.batch), np.float64)
    arrays = [walk.state, walk.gates, walk.final, delta, device.empty_walk(last.shape, np.float64)]
    calls = (
        serial.forward(device, walk),
        serial.backward(device, walk, gradient, last, size.steps, delta, arrays[-1]),
    )
    for _ in range(2):
        for written in arrays:
            written[...] = np.nan
        for call in calls:
            call()
    return [device.to_host(array) for array in arrays], calls


@pytest.fixture(params=["stand-in", pytest.param("gpu", marks=pytest.mark.gpu)])
def cuda(request, monkeypatch) -> CudaDevice:
    """CudaDevice on the stand-in, and on a GPU, without clusters and cooperative launches."""
    monkeypatch.setattr(CudaDevice, "cluster_blocks", 1)
    monkeypatch.setattr(CudaDevice, "cooperative_blocks", 0)
    return request.getfixturevalue("stub") if request.param == "stand-in" else make_device("cuda")


@pytest.mark.parametrize("name, hidden, steps, batch, reverse, ragged, per_step", CASES)
def test_a_launch_a_step_gives_what_the_host_gives(
    name, hidden, steps, batch, reverse, ragged, per_step, cuda: CudaDevice
):  # fmt: skip
    size = WalkSize(FORMS[name], steps, batch, hidden, 8)
    ours, calls = passes(cuda, size, reverse, ragged, per_step)
    assert all(isinstance(call, serial.BySteps) for call in calls)
    wanted, others = passes(get_device("host"), size, reverse, ragged, per_step)
    assert not any(isinstance(call, serial.BySteps) for call in others)
    for label, ours_of, wanted_of in zip(
        ("state", "gates", "final", "delta", "entering"), ours, wanted, strict=True
    ):
        assert_close(ours_of, wanted_of, length=64 * hidden, label=label)
    assert cuda.launched[f"{name}_forward_step"] == 2 * steps
    assert cuda.launched[f"{name}_backward_step"] == 2 * (steps + 1)


def test_wide_walks_go_by_the_whole_grid(cuda: CudaDevice, monkeypatch):
    monkeypatch.setattr(CudaDevice, "cooperative_blocks", 4)
    size = WalkSize(FORMS["gru"], 3, 5, 150, 8)
    for verb in ("forward", "backward"):
        ways = serial_ways(cuda, size, verb)
        assert {"grid 1", "grid 2"} <= set(ways) and ways[0].startswith("grid")
    ours, calls = passes(cuda, size, True, True, True)
    assert all(call.way == "by the whole grid" for call in calls)
    wanted, _ = passes(get_device("host"), size, True, True, True)
    for ours_of, wanted_of in zip(ours, wanted, strict=True):
        assert_close(ours_of, wanted_of, length=64 * 150)


@pytest.mark.parametrize("kind", [bp.RNN, bp.GRU, bp.LSTM])
def test_a_layer_by_matmuls_is_that_of_the_host(kind, stub, rng, monkeypatch):
    monkeypatch.setattr(rules, "GPU_PRODUCT", {"project": 0, "weight": 0})  # every product
    layer = kind(3, 5, 2, bidirectional=True)
    parameters = {name: array for name, array in layer.initialize(rng).items()}
    x, lengths = rng.standard_normal((3, 7, 3)), [7, 2, 4]
    weights = rng.standard_normal((3, 7, 10))
    results = []
    for device in (get_device("host"), stub):
        copies = {name: device.asarray(array) for name, array in parameters.items()}
        y, saved = bp.functional.forward(layer, copies, device.asarray(x), lengths=lengths, device=device)
        gradients = bp.functional.vjp(saved, device.asarray(weights))
        arrays = {"y": y, "input": gradients.input, **gradients.parameters}
        results.append({name: device.to_host(array) for name, array in arrays.items()})
    for name, array in results[0].items():
        np.testing.assert_allclose(results[1][name], array, atol=1e-12, err_msg=name)
    assert not {"sequence_project", "sequence_weight_gradient"} & stub.launched.keys()
