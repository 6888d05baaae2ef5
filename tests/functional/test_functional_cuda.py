"""`bp.functional` on CUDA: what it asks of CuPy, on the stand-in for it."""

from __future__ import annotations

import numpy as np
from cupy_fixtures import stub  # noqa: F401  a fixture

import bppsa_cupy as bp
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.functional import forward
from bppsa_cupy.functional.passes import pool_of


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
