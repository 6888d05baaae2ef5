"""`bppsa_cupy.jax` on CUDA: what its callbacks ask of CuPy and of JAX's memory, on the stand-in."""

from __future__ import annotations

from types import SimpleNamespace

import cupy_stub
import numpy as np
import pytest
from cupy_fixtures import stub  # noqa: F401  a fixture
from jax_cases import bj, draw, jax
from tolerances import assert_close

from bppsa_cupy.devices import get_device
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.jax.passes import Back, Inputs, Wanted, backward_shapes, forward_shapes, go_back, go_forward

#: The address of a stream.
STREAM = 64


class Buffer(cupy_stub.ndarray):
    """Memory of a GPU that JAX hands over."""

    def __dlpack_device__(self):
        return (2, 0)


class HostBuffer(np.ndarray):
    """Memory of the host, likewise."""


def buffers(tree, kind):
    """Arrays as buffers; those of mere shapes are filled with NaN."""

    def make(leaf):
        array = np.full(leaf.shape, np.nan) if isinstance(leaf, jax.ShapeDtypeStruct) else np.array(leaf)
        return array.view(kind)

    return jax.tree.map(make, tree)


@pytest.mark.parametrize("ragged", [False, True])
def test_results_are_the_hosts(stub: CudaDevice, ragged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = (function := bj.GRU(3, 4, 2)).layer
    params, x, state = draw(function, 2, 5)
    inputs = Inputs(x, np.array([5, 2]) if ragged else None, (state,), params)
    saved, wanted = Wanted(saved=True), Wanted(parameters=True, x=True)
    streams = []
    on_stream = CudaDevice.on_stream
    monkeypatch.setattr(CudaDevice, "on_stream", lambda *a: (streams.append(a[1:]), on_stream(*a))[1])
    leaves = []
    for kind in (HostBuffer, Buffer):
        monkeypatch.setattr("bppsa_cupy.jax.passes.get_device", lambda name: stub if name == "cuda" else HOST)
        execution = SimpleNamespace(stream=STREAM)
        results = buffers(forward_shapes(layer, inputs, saved), kind)
        go_forward(layer, saved, execution, results, buffers(inputs, kind))
        back = Back(inputs, results.saved, np.ones((2, 5, 4)), (np.ones((2, 2, 4)),))
        gradients = buffers(backward_shapes(layer, back, wanted), kind)
        go_back(layer, wanted, execution, gradients, buffers(back, kind))
        leaves.append([np.array(leaf.view(np.ndarray)) for leaf in jax.tree.leaves((results, gradients))])
    for ours, expected in zip(*reversed(leaves), strict=True):
        assert_close(ours, expected, 64)
    assert streams == [(0, STREAM)] * 2


HOST = get_device("host")
