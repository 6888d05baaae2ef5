"""Passes over time by a launch a step, through CudaDevice on the stand-in for CuPy, against the host."""

from __future__ import annotations

import cupy_stub_streams
import numpy as np
import pytest
from cell_cases import PARTLY
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from executors import make_device
from marks import some
from timescan_cases import CELLS, placed
from tolerances import assert_close

from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.timescan import Walk, WalkSize, serial
from bppsa_cupy.timescan.ways import serial_ways

#: cell, H, heads, T, B, reverse, ragged, per_step
CASES = [
    ("gru", 640, 1, 2, 9, False, True, True),
    *(pytest.param(*case, marks=pytest.mark.long) for case in (
        ("lstm", 600, 2, 2, 3, True, True, False),
        *((name, 300, 1, 2, 2, True, True, True) for name in sorted(FORMS)),
        ("rnn_tanh", 1024, 1, 3, 1, False, False, False), ("lstm", 900, 1, 2, 1, False, False, True),
    )),
]  # fmt: skip


def make_walk(device, cell, size, reverse, ragged):
    """A walk of random numbers, the same on every device."""
    rng = np.random.default_rng(size.hidden)
    H, T, B, h = size.hidden, size.steps, size.batch, size.units

    def array(*shape, scale=1.0):
        return device.asarray((scale * rng.standard_normal(shape)).astype(np.float32))

    def of_walk(*shape):
        return placed(device, rng.standard_normal(shape).astype(np.float32))

    def empty(*shape):
        return device.empty_walk(shape, np.float32)

    return Walk(
        size=size,
        reverse=reverse,
        weight_hh=array(size.heads, cell.sums * h, h, scale=h**-0.5),
        bias_hh=array(size.heads, cell.sums * h),
        unit=array(size.heads, cell.parameters * h),
        lengths=device.asarray(rng.integers(0 if ragged else T, T + 1, B)),
        initial=of_walk(cell.states * H, B),
        projected=of_walk(T, cell.gates * H, B),
        state=empty(T, cell.states * H, B),
        gates=empty(T, cell.kept * H, B),
        final=empty(cell.states * H, B),
    )


def run(device, cell, size, reverse, ragged, per_step):
    """State, kept rows, final state, delta and entering gradient, of the second of two equal passes; and what
    ran forward and back."""
    walk = make_walk(device, cell, size, reverse, ragged)
    rng = np.random.default_rng(1)
    shape = size.steps, size.hidden, size.batch
    gradient = placed(device, rng.standard_normal(shape).astype(np.float32)) if per_step else None
    boundary = placed(device, rng.standard_normal(walk.initial.shape).astype(np.float32))
    delta = device.empty_walk((size.steps, cell.deltas * size.hidden, size.batch), np.float32)
    entering = device.empty_walk(boundary.shape, np.float32)
    passes = (
        serial.forward(device, walk),
        serial.backward(device, walk, gradient, boundary, size.steps, delta, entering),
    )
    for _ in range(2):
        for written in (walk.state, walk.gates, walk.final, delta, entering):
            written[...] = np.nan
        for one in passes:
            one()
    return [device.to_host(a) for a in (walk.state, walk.gates, walk.final, delta, entering)], passes


@pytest.fixture(params=["stand-in", pytest.param("gpu", marks=pytest.mark.gpu)])
def cuda(request, monkeypatch) -> CudaDevice:
    """CudaDevice on the stand-in, and on a GPU, without clusters and cooperative launches."""
    monkeypatch.setattr(CudaDevice, "cluster_blocks", 1)
    monkeypatch.setattr(CudaDevice, "cooperative_blocks", 0)
    return request.getfixturevalue("stub") if request.param == "stand-in" else make_device("cuda")


@pytest.mark.parametrize("name, hidden, heads, steps, batch, reverse, ragged, per_step", CASES)
def test_it_gives_what_the_host_gives(
    name, hidden, heads, steps, batch, reverse, ragged, per_step, cuda: CudaDevice
):  # fmt: skip
    cell = FORMS[name]
    size = WalkSize(cell, steps, batch, hidden, 4, heads)
    ours, passes = run(cuda, cell, size, reverse, ragged, per_step)
    assert all(isinstance(one, serial.BySteps) for one in passes)
    wanted, others = run(get_device("host"), cell, size, reverse, ragged, per_step)
    assert not any(isinstance(one, serial.BySteps) for one in others)
    for what, ours_of, wanted_of in zip(
        ("state", "gates", "final", "delta", "entering"), ours, wanted, strict=True
    ):
        assert_close(ours_of, wanted_of, length=64 * hidden, what=what)
    assert cuda.launched[f"{name}_forward_step"] == 2 * steps
    assert cuda.launched[f"{name}_backward_step"] == 2 * (steps + 1)


def test_wide_walks_go_by_the_whole_grid(cuda: CudaDevice, monkeypatch):
    monkeypatch.setattr(CudaDevice, "cooperative_blocks", 4)
    cell, size = FORMS["gru"], WalkSize(FORMS["gru"], 3, 5, 202, 4)
    ours, passes = run(cuda, cell, size, True, True, True)
    assert all(one.way == "by the whole grid" for one in passes)
    wanted, _ = run(get_device("host"), cell, size, True, True, True)
    for ours_of, wanted_of in zip(ours, wanted, strict=True):
        assert_close(ours_of, wanted_of, length=64 * 202)


def test_steps_lie_in_graphs_of_many(stub: CudaDevice, monkeypatch):
    monkeypatch.setattr(CudaDevice, "cooperative_blocks", 0)
    monkeypatch.setattr(serial, "LAUNCHES", 3)
    before = len(cupy_stub_streams.Graph.made)
    cell = CELLS["tanh"]
    run(stub, cell, WalkSize(cell, 6, 1, 300, 4), False, False, False)
    graphs = [graph.capture for graph in cupy_stub_streams.Graph.made[before:]]
    # 3 and 3 forward; 3, 3 and the end back, a launch of its own. Each waits for the one before it alone.
    assert [len(graph.nodes) for graph in graphs] == [3, 3, 3, 3]
    assert all(graph.edges == [(0, 1), (1, 2)] for graph in graphs)


def size_of(cell: str, hidden: int, batch: int = 16, itemsize: int = 4, heads: int = 1) -> WalkSize:
    return WalkSize(FORMS[cell], 1000, batch, hidden, itemsize, heads)


@pytest.mark.parametrize("verb", ["forward", "backward"])
def test_widths_beyond_what_a_block_holds_go_by_steps_without_clusters(verb, cuda: CudaDevice):
    for cell, narrow, wide in (("rnn_tanh", 200, 300), ("gru", 100, 192), ("lstm", 100, 192)):
        assert serial_ways(cuda, size_of(cell, narrow), verb)[0] == "blocks"
        for size in (size_of(cell, wide), size_of(cell, 1024, 1), size_of(cell, wide, 64, itemsize=8)):
            assert serial_ways(cuda, size, verb)[0] == "steps"
        assert serial_ways(get_device("host"), size_of(cell, 1024), verb) == ["blocks"]
    heads = size_of("lstm", 1024, heads=64)
    assert serial_ways(cuda, heads, verb)[0] == "blocks", "heads of 16 units fit into registers"


@pytest.mark.parametrize("name", some("partly", long=[name for name in PARTLY if name != "partly"]))
def test_cells_with_some_recurrent_gates_go_by_a_launch_a_step_too(name: str, emulated: Device) -> None:
    cell, (steps, batch) = PARTLY[name].form, (3, 5)
    size, found = WalkSize(cell, steps, batch, 9, 4), []
    for by_step in (True, False):
        device = emulated if by_step else get_device("host")
        walk = make_walk(device, cell, size, reverse=True, ragged=True)
        rng = np.random.default_rng(1)
        gradient = placed(device, rng.standard_normal((steps, 9, batch)).astype(np.float32))
        boundary = placed(device, rng.standard_normal(walk.initial.shape).astype(np.float32))
        delta = device.empty_walk((steps, cell.deltas * 9, batch), np.float32)
        entering, way = device.empty_walk(boundary.shape, np.float32), "steps" if by_step else None
        serial.forward(device, walk, way)()
        serial.backward(device, walk, gradient, boundary, steps, delta, entering, way)()
        found.append((walk.state, walk.gates, walk.final, delta, entering))
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, length=64 * 9)
