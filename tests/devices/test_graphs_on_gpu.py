"""CUDA graphs on the real driver: replays leave what plain launches leave."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from bppsa_cupy.devices import get_device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.raw_kernels import KERNELS

pytestmark = pytest.mark.gpu
RELU = KERNELS["relu_forward"]


@pytest.fixture
def cuda() -> CudaDevice:
    return get_device("cuda")


def assert_replays_agree(device: CudaDevice, work: Callable[[], object], arrays: Sequence[Any]) -> None:
    """Run work plainly three times, and from the same values once plainly and twice as a graph."""
    before = [array.copy() for array in arrays]
    for _ in range(3):
        work()
    expected = [device.to_host(array) for array in arrays]
    for array, value in zip(arrays, before, strict=True):
        array[...] = value
    work()
    graph = device.capture(work)
    for _ in range(2):
        graph(device)
    for array, value in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(device.to_host(array), value)


def test_kernels_ufuncs_products_and_branches(cuda: CudaDevice) -> None:
    rng = np.random.default_rng(0)
    vectors = [cuda.asarray(np.arange(-50.0, 50.0)) for _ in range(6)]
    a, b, c = (cuda.asarray(rng.standard_normal((256, 256)).astype("f4") / 16) for _ in range(3))
    pairs = ((0, 1), (0, 2), (1, 3), (2, 4), (4, 5))
    sequence = cuda.sequence([cuda.bind(RELU, vectors[x], vectors[y], 100) for x, y in pairs])
    sequence()

    def work() -> None:
        vectors[0][...] = vectors[0] + 1
        sequence()
        vectors[0][:1] = vectors[5].max()
        cuda.multiply(a, b, c)
        cuda.multiply(c, a, b)
        b[...] = b + cuda.xp.tanh(c)

    assert_replays_agree(cuda, work, [*vectors, b, c])


def test_products_of_two_graphs_at_once(cuda: CudaDevice) -> None:
    """Each graph needs its own workspace of cuBLAS."""
    rng = np.random.default_rng(0)
    arrays = [[cuda.asarray(rng.standard_normal((1024, 1024)) / 32) for _ in range(2)] for _ in range(2)]
    outs = [cuda.empty((1024, 1024), np.float64) for _ in range(2)]
    graphs = []
    for (left, right), out in zip(arrays, outs, strict=True):
        cuda.multiply(left, right, out)
        graphs.append(cuda.capture(lambda left=left, right=right, out=out: cuda.multiply(left, right, out)))
    expected = [cuda.to_host(out) for out in outs]
    streams = [cuda.xp.cuda.Stream(non_blocking=True) for _ in range(2)]
    for _ in range(20):
        for out in outs:
            out[...] = 0
        cuda.synchronize()
        for graph, stream in zip(graphs, streams, strict=True):
            with stream:
                graph(cuda)
        for stream in streams:
            stream.synchronize()
        for out, value in zip(outs, expected, strict=True):
            np.testing.assert_array_equal(cuda.to_host(out), value)


def test_copies_in_flight(cuda: CudaDevice) -> None:
    """Fetched copies that nobody waits for, while new pinned memory is taken; graphs that are dropped."""
    array = cuda.zeros(1 << 20, np.float32)
    waits = []
    for turn in range(50):
        array[...] = turn
        wait = cuda.fetch(array)
        if turn % 5 == 0:
            waits.append((turn, wait))
        cuda.capture(lambda: cuda.xp.add(array, 1, out=array))(cuda)
    gc.collect()
    assert all((wait() == turn).all() for turn, wait in waits)


def test_a_failed_capture_leaves_a_device_that_works(cuda: CudaDevice) -> None:
    array = cuda.zeros(4, np.float64)
    with pytest.raises(Exception, match="captur"):
        cuda.capture(lambda: cuda.xp.asnumpy(array))
    assert_replays_agree(cuda, lambda: cuda.xp.add(array, 1, out=array), [array])
