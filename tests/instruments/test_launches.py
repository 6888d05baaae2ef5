"""What a step launches on a GPU on paper is what it launches where kernels run."""

from __future__ import annotations

import json
import sys

import cupy_stub
import cupy_stub_streams
import numpy as np
import pytest
from emulator.build import compiler
from plan_cases import plan_of, small_network

import bppsa_cupy as bp
from bppsa_cupy.devices import cubins, cuda
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.scan import NumericScan
from bppsa_cupy.timescan.lengths import take_lengths
from bppsa_cupy.tools.instruments.bench import main
from bppsa_cupy.tools.instruments.launches.paper import PaperGpu
from bppsa_cupy.tools.instruments.launches.step import step_rows

pytestmark = pytest.mark.long


def test_lengths_of_the_host_are_copied_once_and_nothing_waits():
    gpu = PaperGpu()
    lengths = take_lengths(gpu, np.array([3, 2], np.int32), 2, 4)
    assert [one.name for one in gpu.log.taken()] == ["copy from the host"]
    with pytest.raises(bp.ShapeError):  # on paper all are 0
        take_lengths(gpu, lengths, 2, 4)
    assert [one.name for one in gpu.log.taken()] == ["copy to the host"]


#: Tables 4 to 6 by their extremes, and a layer whose serial way is a launch a step.
RECURRENT = [
    (bp.RNN, 1, 20, 16, 10, "serial", "auto"), (bp.RNN, 1, 20, 16, 1000, "serial", "auto"),
    (bp.RNN, 1, 20, 16, 30000, "serial", "auto"), (bp.RNN, 1, 20, 16, 1000, "serial", "blelloch"),
    (bp.RNN, 1, 20, 256, 1000, "serial", "auto"), (bp.RNN, 1, 20, 16, 30000, "newton", "auto"),
    (bp.GRU, 20, 20, 16, 125, "auto", "auto"), (bp.GRU, 20, 20, 16, 125, "serial", "blelloch"),
    (bp.LSTM, 512, 512, 16, 100, "serial", "auto"),
]  # fmt: skip


@pytest.mark.parametrize("layer, inputs, hidden, batch, steps, way, back", RECURRENT)
def test_the_host_waits_in_no_step_of_a_recurrent_network(layer, inputs, hidden, batch, steps, way, back):
    """But for what Newton's iterations find; without them a pass there and back is captured in one graph."""
    gpu = PaperGpu()
    layers = [layer(inputs, hidden, outputs="last", forward_method=way), bp.Linear(hidden, 10)]
    net = bp.Sequential(layers, input_shape=(steps, inputs), seed=0, device=gpu)
    row = step_rows(net, back, batch)[-1]
    newton = "newton" in net.last_pass.layers[0].forward_ways[0]
    assert row["waits"] == 0 if not newton else row["waits"] > 0
    if back == "blelloch":
        assert "chunked" in net.last_backward.backward_ways[0]
    if newton:
        return
    inputs, gradient = (gpu.empty((batch, *shape), np.float32) for shape in ((steps, inputs), (10,)))
    stream = gpu.xp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        net.forward(inputs, into=net.last_pass)
        net.backward(gradient, method=back)
        stream.end_capture()
    assert gpu.log.taken() == []


def network(device):
    layers = [bp.Conv2d(2, 3, 3), bp.BatchNorm2d(3), bp.ReLU(), bp.MaxPool2d(2), bp.Flatten()]
    layers.append(bp.Linear(12, 4))
    net = bp.Sequential(layers, input_shape=(2, 6, 6), seed=0, device=device).train()
    net.use(net.plan(batch_size=4))
    return net


def rows_of(net, method, batch=4):
    return {row["phase"]: row for row in step_rows(net, method, batch)}


@pytest.fixture
def stub(monkeypatch, tmp_path):
    if compiler() is None:
        pytest.skip("the emulated device needs g++")
    monkeypatch.setitem(sys.modules, "cupy", cupy_stub.make_cupy())
    monkeypatch.setattr(cubins, "kept_in", lambda: tmp_path)
    cupy_stub_streams.Graph.made.clear()
    return CudaDevice()


@pytest.mark.parametrize("method", ["bp", "linear", "blelloch"])
def test_kernels_and_graphs_are_those_of_a_step_that_runs(method, stub, monkeypatch):
    # What is repeated is a graph where arrays come to lie where earlier ones lay, which is chance: none here.
    monkeypatch.setattr(cuda, "MOST_LAUNCHES", -1)
    net = network(stub)
    optimizer = bp.SGD(net.parameters, lr=0.01, momentum=0.9)
    images, labels = np.zeros((4, 2, 6, 6), np.float32), np.zeros(4, np.int64)
    for _ in range(3):
        before = stub.launched.copy()
        _, gradient = bp.cross_entropy(net.forward(images, into=net.last_pass), labels, device=stub)
        net.backward(gradient, method=method)
        optimizer.step(net.gradients)
    row = rows_of(network(PaperGpu()), method)["step"]
    counted = {name: one["kernels"] for name, one in row["by_name"].items()}
    assert {name: count for name, count in counted.items() if name in bp.raw_kernels.KERNELS} == dict(
        stub.launched - before
    )
    assert [g["edges"] for g in row["graphs"]] == [g.capture.edges for g in cupy_stub_streams.Graph.made]
    assert row["kernels"] - row["launches"] == sum(len(g["nodes"]) - 1 for g in row["graphs"])


def test_bytes_are_those_of_the_arrays():
    layers = [bp.Linear(5, 7, bias=False)]
    net = bp.Sequential(layers, input_shape=(5,), seed=0, dtype="float64", device=PaperGpu()).train()
    rows = rows_of(net, "bp", batch=3)
    x, y, weight = 8 * 3 * 5, 8 * 3 * 7, 8 * 5 * 7
    assert rows["forward"]["by_name"] == {
        "copy from the host": {"kernels": 1, "read": x, "written": x},
        "cupy matmul": {"kernels": 1, "read": x + weight, "written": y},
    }
    assert rows["backward"]["by_name"] == {"cupy matmul": {"kernels": 1, "read": x + y, "written": weight}}
    assert rows["step"]["read"] == sum(rows[phase]["read"] for phase in rows if phase != "step")


def test_values_that_depend_on_nothing_are_copied_to_the_device_once():
    layers = [bp.Conv2d(2, 3, 3), bp.AvgPool2d(2), bp.Flatten(), bp.Linear(12, 4)]
    net = bp.Sequential(layers, input_shape=(2, 6, 6), seed=0, device=PaperGpu()).train()
    net.use(net.plan(batch_size=4))
    copies = [rows_of(net, method)["step"]["by_name"]["copy from the host"] for method in ("bp", "linear")]
    assert copies[0] == copies[1]


def test_products_of_a_level_are_on_branches_side_by_side():
    device = PaperGpu()
    plan = plan_of(small_network(), batch_size=2)
    schedule = plan.schedule(0, "blelloch")
    scan = NumericScan(device, np.dtype(np.float32), plan.chains[0], schedule, 2)
    device.log.taken()
    scan.run(2)
    scan.run(2)
    graph = device.log.taken()[-1].graph
    assert len(graph.nodes) == len(schedule.steps) and graph.longest <= schedule.depth
    behind = []
    for before in graph.before:
        behind.append(set(before).union(*(behind[k] for k in before)))
    for first, one in enumerate(schedule.steps):
        for second, other in enumerate(schedule.steps):
            if one.level == other.level:
                assert first not in behind[second], (one, other)
            if one.out in (other.left, other.right):
                assert first in behind[second], (one, other)


def test_a_function_that_is_not_counted_is_refused():
    device = PaperGpu()
    with pytest.raises(NotImplementedError, match=r"what xp\.copyto launches is not counted"):
        device.xp.copyto(device.xp.empty(3), 0)


def test_the_command(tmp_path, capsys):
    file = tmp_path / "lenet5.json"
    command = ["launches", "lenet5", "--batch-size", "2", "--methods", "bp", "linear", "--graphs"]
    assert main([*command, "--json", str(file)]) == 0
    text = capsys.readouterr().out
    assert "linear, graph 1:" in text and "1 csr_spmv after 0" in text
    report = json.loads(file.read_text(encoding="utf-8"))
    assert [(row["method"], row["phase"]) for row in report["rows"][::5]] == [
        ("bp", "forward"),
        ("linear", "forward"),
    ]
    steps = {row["method"]: row for row in report["rows"] if row["phase"] == "step"}
    of_scan = [graph for graph in steps["linear"]["graphs"] if "csr_spmv" in graph["nodes"]]
    assert steps["bp"]["graphs"] and len(of_scan) == 1
    assert f"{steps['linear']['launches']}" in text
