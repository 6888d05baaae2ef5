"""Records of step Jacobians for tests: of given matrices, and of recurrent networks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import bppsa_cupy as bp
from bppsa_cupy.csr import Pattern


def records_of(
    jacobians: np.ndarray, *, name: str = "RNN l0", dtype: type = np.float64, **fields: object
) -> bp.JacobianRecords:
    """Records of J_t = ∂s_t/∂s_{t-1} (T, B, S, S), by time, as dense patterns."""
    steps, batch, size, _ = jacobians.shape
    pattern = Pattern.dense(size, size)
    data = jacobians.swapaxes(2, 3).reshape(steps, batch, size * size).swapaxes(1, 2).astype(dtype)
    return bp.JacobianRecords(
        bp.JacobianRecord(0, name, pattern, np.ascontiguousarray(values), step, **fields)
        for step, values in enumerate(data)
    )


def network_records(
    layer: bp.Recurrent, steps: int, batch: int, *, lengths: Sequence[int] | None = None, **options: object
) -> tuple[bp.Sequential, bp.JacobianRecords]:
    """A float64 network of one recurrent layer after a pass over random numbers, and its records."""
    net = bp.Sequential([layer], (steps, layer.input_size), dtype="float64", device="host", seed=5)
    x = np.random.default_rng(steps).standard_normal((batch, steps, layer.input_size))
    net.forward(x, lengths=lengths, **options)
    return net, net.transposed_jacobians()


def wide(rng: np.random.Generator, size: int, radius: float) -> np.ndarray:
    """A random matrix (size, size) of that spectral radius."""
    matrix = rng.standard_normal((size, size))
    return matrix * (radius / np.abs(np.linalg.eigvals(matrix)).max())
