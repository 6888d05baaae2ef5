"""`bp.functional` on CUDA: what it asks of CuPy, on the stand-in for it."""

from __future__ import annotations

import numpy as np
import pytest
from cupy_fixtures import stub  # noqa: F401  a fixture
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.functional import forward, vjp
from bppsa_cupy.functional.pool import pool_of


@pytest.mark.parametrize("batch_first", [True, False])
def test_results_are_the_hosts(stub: CudaDevice, rng: np.random.Generator, batch_first: bool) -> None:
    layer = bp.GRU(3, 5, 2, batch_first=batch_first)
    parameters = layer.initialize(rng)
    x = rng.standard_normal((4, 6, 3))
    found = []
    for device in ("host", stub):
        y, saved = forward(layer, parameters, x, device=device)
        gradients = vjp(saved, np.ones(y.shape))
        arrays = [y, saved.states, gradients.input, gradients.states, *gradients.parameters.values()]
        found.append([saved.context.device.to_host(array) for array in arrays])
    for ours, expected in zip(*reversed(found), strict=True):
        assert_close(ours, expected, 64)


def test_memory_stays_on_its_gpu_and_stream(stub: CudaDevice, rng: np.random.Generator) -> None:
    layer = bp.GRU(3, 5)
    parameters = {name: stub.asarray(array) for name, array in layer.initialize(rng).items()}
    x = stub.asarray(rng.standard_normal((4, 6, 3)))

    def context() -> bp.Context:
        _, saved = forward(layer, parameters, x, device=stub)
        return saved.context

    first = context()
    assert context() is first
    with stub.on_stream(0, 64):
        assert stub.queue == (0, 64)
        other = context()
        assert other is not first and context() is other
    assert stub.queue[0] == 0 and context() is first
    assert len(pool_of(layer)._free) == 2
