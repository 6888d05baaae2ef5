"""Work that is made again and again: on a GPU, by the stand-in for CuPy, as a graph."""

from __future__ import annotations

from contextlib import nullcontext
from threading import Thread

import numpy as np
import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from cupy_stub_streams import Graph, Stream
from marks import some, some_rows

import bppsa_cupy as bp
from bppsa_cupy.devices import Device
from bppsa_cupy.devices.base import CaptureError, Graphs
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.raw_kernels import KERNELS

LAYERS = some(bp.RNN, long=[bp.LSTM, bp.GRU])


def doubling(device: Device, array: np.ndarray, out: np.ndarray, count: int = 1):
    """Work of a kernel and of CuPy's own functions, some of them into an array of its own."""

    def work() -> None:
        for _ in range(count):
            device.launch(KERNELS["relu_forward"], array, out, out.size)
        out[...] = array + out

    return work


@pytest.fixture
def graphs() -> int:
    """How many graphs there were."""
    return len(Graph.made)


def test_work_is_one_graph_from_the_second_time_on(stub: CudaDevice, graphs: int) -> None:
    cache: Graphs = {}
    array, out = stub.asarray(np.arange(4.0)), stub.zeros(4, np.float64)
    for turn in range(4):
        array[...] = np.float64(turn)
        before = stub.launched["relu_forward"]
        stub.repeat(cache, "twice", (array, out), doubling(stub, array, out))
        assert np.array_equal(stub.to_host(out), [2.0 * turn] * 4)
        assert stub.launched["relu_forward"] == before + 1
        assert len(Graph.made) == graphs + (turn > 0)


def test_other_arrays_and_other_work_are_other_graphs(stub: CudaDevice, graphs: int) -> None:
    cache: Graphs = {}
    arrays = [(stub.asarray(np.full(4, k)), stub.zeros(4, np.float64)) for k in (1.0, 2.0)]
    arrays.append((arrays[0][0], arrays[0][1][:2]))
    for _ in range(3):
        for array, out in arrays:
            stub.repeat(cache, "a", (array, out), doubling(stub, array[: out.size], out))
            assert np.array_equal(stub.to_host(out), 2 * stub.to_host(array)[: out.size])
    assert len(Graph.made) == graphs + 3
    stub.repeat(cache, "b", arrays[0], lambda: arrays[0][1].fill(7.0))
    assert np.array_equal(stub.to_host(arrays[0][1]), np.full(4, 7.0))


def test_another_thread_stays_out_of_a_capture(stub: CudaDevice) -> None:
    results = []

    def record() -> None:
        other = Thread(target=lambda: results.append(stub.side is None))
        other.start()
        other.join()
        results.append(stub.side is None)

    stub.capture(record, whole_step=True)
    assert results == [True, False]


def test_what_cannot_be_captured_is_made_plainly(stub: CudaDevice) -> None:
    cache: Graphs = {}
    array, calls = stub.asarray(np.ones(2)), []

    def work() -> None:
        calls.append(Stream.current[-1].capture is not None)
        stub.synchronize()  # which a capture refuses
        array[...] = array + np.float64(1)

    for turn in range(4):
        with pytest.warns(RuntimeWarning, match="launch by launch") if turn == 1 else nullcontext():
            stub.repeat(cache, "a", (array,), work)
        assert np.array_equal(stub.to_host(array), [2.0 + turn] * 2)
        assert not stub.capturing and Stream.current[-1].capture is None
    assert calls == [False, True, False, False, False]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("outputs, method", some_rows(("all", "blelloch"), long=[("last", "linear")]))
def test_steps_of_a_network_on_graphs_are_those_of_the_host(
    layer: type, outputs: str, method: str, stub: CudaDevice, graphs: int, rng: np.random.Generator
) -> None:
    """With batches that alternate, lengths, states and new parameters in between."""
    nets = [
        bp.Sequential(
            [layer(3, 5, 2, outputs=outputs), bp.Linear(5, 4)], (9, 3), dtype="float64", device=device, seed=1
        )
        for device in ("host", stub)
    ]
    optimizers = [bp.SGD(net.parameters, lr=0.1, momentum=0.9) for net in nets]
    for net in nets:
        net.use(net.plan(batch_size=3))
    for turn in range(7):
        batch = (2, 2, 3)[turn % 3]
        x = rng.standard_normal((batch, 9, 3))
        labels = rng.integers(0, 4, (batch, 9) if outputs == "all" else batch)
        lengths = np.array([9, 4, 6])[:batch] if turn == 4 else None
        state = rng.standard_normal((2, batch, 5))
        states = {0: (state, state) if layer is bp.LSTM else state} if turn == 5 else None
        results = []
        for net, optimizer in zip(nets, optimizers, strict=True):
            scores = net.forward(x, lengths=lengths, states=states, into=net.last_pass)
            counted = lengths if outputs == "all" else None
            loss, gradient = bp.cross_entropy(scores, labels, lengths=counted, device=net.device)
            by_input = net.backward(gradient, method=method, input_gradient=True)
            final = net.last_pass.states[0]
            arrays = [scores, loss, by_input, *(final if isinstance(final, tuple) else (final,))]
            results.append([np.array(net.device.to_host(array)) for array in arrays])
            results[-1] += [np.array(array) for array in net.gradients.to_host().values()]
            optimizer.step(net.gradients)
        for ours, theirs in zip(*results, strict=True):
            np.testing.assert_allclose(theirs, ours, rtol=1e-10, atol=1e-12)
    assert len(Graph.made) > graphs + 4


# ---- what a capture does to what is around it ----


@pytest.mark.parametrize(
    "layer, method",
    [
        (bp.LSTM(3, 5, 2, outputs="all"), "auto"), (bp.GRU(3, 5), "blelloch"), (bp.MinGRU(3, 5), "auto"),
        (bp.Linear(3, 5), "auto"),
    ],
)  # fmt: skip
def test_functions_go_into_a_capture_of_another_library(
    layer: bp.layers.base.Layer, method: str, stub: CudaDevice, rng: np.random.Generator
) -> None:
    """Passes captured by others, whose pool gives the memory and who refuse cudaMalloc and pinned memory, are
    replayed on other values, also after passes of the same layer that are not captured."""
    cuda, shape = stub.xp.cuda, (2, 3) if isinstance(layer, bp.Linear) else (2, 9, 3)
    parameters = {name: stub.asarray(rng.standard_normal(s)) for name, s in layer.parameter_shapes().items()}
    x, result = stub.asarray(rng.standard_normal(shape)), {}

    def work() -> None:
        y, saved = bp.functional.forward(layer, parameters, x, device=stub)
        result["y"], result["by"] = y, bp.functional.vjp(saved, y, method=method)

    work()
    stream, pool = cuda.Stream(non_blocking=True), cuda.MemoryPool()
    with stream, cuda.using_allocator(pool.malloc):
        stream.begin_capture()
        work()
        graph = stream.end_capture()
    captured = dict(result)
    for _ in range(2):
        x[...] = stub.asarray(rng.standard_normal(shape))
        work()
        graph.launch(cuda.get_current_stream())
        pairs = [(captured["y"], result["y"]), (captured["by"].input, result["by"].input)]
        pairs += [(captured["by"].parameters[k], array) for k, array in result["by"].parameters.items()]
        for ours, theirs in pairs:
            np.testing.assert_allclose(stub.to_host(ours), stub.to_host(theirs), rtol=1e-12, atol=1e-13)


def test_a_capture_refuses_the_host(stub: CudaDevice) -> None:
    """Arrays of the host, and memory of the default pool, whose graph would outlive them."""
    array = stub.zeros(4, np.float64)
    for wrong in (lambda: stub.asarray(np.ones(4)), lambda: stub.to_host(array), lambda: stub.fetch(array)()):
        with pytest.raises((CaptureError, RuntimeError)):
            stub.capture(wrong)
    assert not stub.capturing


def test_a_pass_goes_on_behind_its_other_stream(stub: CudaDevice, rng: np.random.Generator) -> None:
    """A way back on another stream than its forward pass waits for it, and the next pass for that."""
    net = bp.Sequential([bp.Linear(3, 2)], (3,), dtype="float64", device=stub)
    streams = [stub.xp.cuda.Stream(non_blocking=True) for _ in range(2)]
    waited: list[tuple[object, object]] = []
    for stream in streams:
        stream.wait_event = lambda event, waiter=stream: waited.append((waiter, event._stream))
    with streams[0]:
        y = net.forward(rng.standard_normal((4, 3)))
    with streams[1]:
        net.backward(y)
    with streams[0]:
        net.forward(rng.standard_normal((4, 3)), into=net.last_pass)
    assert waited == [(streams[1], streams[0]), (streams[0], streams[1])]
