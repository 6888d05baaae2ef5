"""CUDA graphs on the real driver: a line of JSON per check.

A check that fails has "error" and "trace" in its line; the others still run. Whole steps as graphs are
compared with PyTorch and timed by `bppsa-bench steps`.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bppsa_cupy.devices import get_device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.tools.on_gpu.lines import tell


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 where every check passed, else 1."""
    parser = argparse.ArgumentParser(prog="captures", description=__doc__)
    parser.add_argument("--only", help="a part of the names of the checks that run")
    arguments = parser.parse_args(argv)
    device, failed = get_device("cuda"), False
    assert isinstance(device, CudaDevice)
    for piece in PIECES:
        name = piece.__name__
        if arguments.only is not None and arguments.only not in name:
            continue
        begin = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                line = piece(device)
        except Exception as error:
            line = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        failed = failed or "error" in line
        tell(check=name, **line, took=round(time.perf_counter() - begin, 3))
    return int(failed)


def kernel_and_ufunc(device: CudaDevice) -> dict[str, Any]:
    """A kernel, a ufunc with an array of its own and a reduction, replayed on other values."""
    array, out = device.asarray(np.arange(1000.0)), device.zeros(1000, np.float64)

    def run() -> None:
        device.launch(KERNELS["relu_forward"], array, out, out.size)
        out[...] = array + 2 * out
        array[:1] = out.max()

    return replays_agree(device, run, [array, out])


def cublas(device: CudaDevice) -> dict[str, Any]:
    """Products by cuBLAS."""
    rng = np.random.default_rng(0)
    a, b, c = (device.asarray(rng.standard_normal((256, 256)).astype("f4") / 16) for _ in range(3))

    def run() -> None:
        device.multiply(a, b, c)
        device.multiply(c, a, b)
        b[...] = b + device.xp.tanh(c)

    return replays_agree(device, run, [a, b, c])


def cublas_on_two_streams(device: CudaDevice) -> dict[str, Any]:
    """Two graphs of products that run at once leave what they leave one after another."""
    cuda, rng = device.xp.cuda, np.random.default_rng(0)
    arrays = [[device.asarray(rng.standard_normal((1024, 1024)) / 32) for _ in range(2)] for _ in range(2)]
    outs = [device.empty((1024, 1024), np.float64) for _ in range(2)]

    def run(number: int) -> Callable[[], None]:
        left, right = arrays[number]
        return lambda: device.multiply(left, right, outs[number])

    graphs = []
    for number in range(2):
        run(number)()
        graphs.append(device.capture(run(number)))
    expected = [device.to_host(out) for out in outs]
    streams = [cuda.Stream(non_blocking=True) for _ in range(2)]
    differing = 0
    for _ in range(20):
        for out in outs:
            out[...] = 0
        device.synchronize()
        for graph, stream in zip(graphs, streams, strict=True):
            with stream:
                graph(device)
        for stream in streams:
            stream.synchronize()
        pairs = zip(outs, expected, strict=True)
        differing += sum(not np.array_equal(device.to_host(out), value) for out, value in pairs)
    return {"differing": differing, **({"error": "products differ"} if differing else {})}


def branches(device: CudaDevice) -> dict[str, Any]:
    """A sequence of launches, some of them independent, inside another capture."""
    arrays = [device.asarray(np.arange(-50.0, 50.0)) for _ in range(6)]
    relu = KERNELS["relu_forward"]
    pairs = ((0, 1), (0, 2), (1, 3), (2, 4), (4, 5))
    sequence = device.sequence([device.bind(relu, arrays[a], arrays[b], 100) for a, b in pairs])
    sequence()

    def run() -> None:
        arrays[0][...] = arrays[0] + 1
        sequence()

    return replays_agree(device, run, arrays)


def copies_in_flight(device: CudaDevice) -> dict[str, Any]:
    """Fetched copies that nobody waits for, while new pinned memory is taken; graphs that are dropped."""
    array = device.zeros(1 << 20, np.float32)
    waits = []
    for turn in range(50):
        array[...] = turn
        wait = device.fetch(array)
        if turn % 5 == 0:
            waits.append((turn, wait))
        graph = device.capture(lambda: device.xp.add(array, 1, out=array))
        graph(device)
        del graph
    gc.collect()
    wrong = [turn for turn, wait in waits if not (wait() == turn).all()]
    return {"wrong": wrong, **({"error": "copies were written over"} if wrong else {})}


def a_failed_capture(device: CudaDevice) -> dict[str, Any]:
    """A wait in a capture raises; afterwards the device works, and captures work."""
    array = device.zeros(4, np.float64)
    try:
        device.capture(lambda: device.to_host(array))
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    else:
        return {"error": "a wait in a capture raised nothing"}
    array[...] = 3
    return {"raised": told, **replays_agree(device, lambda: device.xp.add(array, 1, out=array), [array])}


PIECES = kernel_and_ufunc, cublas, branches, a_failed_capture, copies_in_flight, cublas_on_two_streams


def replays_agree(device: CudaDevice, run: Callable[[], object], arrays: Sequence[Any]) -> dict[str, Any]:
    """Run work plainly three times, and from the same values once plainly and twice as a graph."""
    before = [array.copy() for array in arrays]
    for _ in range(3):
        run()
    expected = [device.to_host(array) for array in arrays]
    for array, value in zip(arrays, before, strict=True):
        array[...] = value
    run()
    graph = device.capture(run)
    for _ in range(2):
        graph(device)
    pairs = zip(arrays, expected, strict=True)
    worst = max(float(np.abs(device.to_host(array) - value).max()) for array, value in pairs)
    return {"worst": worst, **({"error": f"a graph differs by {worst}"} if worst else {})}


if __name__ == "__main__":
    sys.exit(main())
