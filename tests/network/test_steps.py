"""A step at a time: the bits of a serial pass, for every recurrent layer."""

from __future__ import annotations

import numpy as np
import pytest
from marks import some

import bppsa_cupy as bp

LAYERS = (
    "RNN",
    "GRU",
    "LSTM",
    "PeepholeLSTM",
    "MinGRU",
    "MinLSTM",
    "SRU",
    "QRNN",
    "LRU",
    "RGLRU",
    "DiagonalSSM",
)


@pytest.mark.parametrize("dtype", some("float64", long=("float32",)))
@pytest.mark.parametrize("name", LAYERS)
def test_steps_leave_the_bits_of_a_pass(name: str, dtype: str) -> None:
    sizes = (5,) if name == "RGLRU" else (5, 17, 2)
    layer = getattr(bp, name)(*sizes, forward_method="serial")
    net = bp.Sequential([layer], input_shape=(23, 5), dtype=dtype, device="host")
    x = np.random.default_rng(0).standard_normal((3, 23, 5)).astype(dtype)
    y, steps = net.forward(x).copy(), net.steps()
    for t in range(23):
        np.testing.assert_array_equal(steps(x[:, t]), y[:, t])


def test_a_network_a_step_at_a_time_leaves_the_bits_of_a_pass() -> None:
    layers = [
        bp.Linear(3, 8),
        bp.Residual([bp.RMSNorm(8), bp.MinGRU(8, 8, forward_method="serial")]),
        bp.Residual([bp.Linear(8, 16), bp.GELU(), bp.Linear(16, 8)]),
        bp.LSTM(8, 5, forward_method="serial"),
    ]
    net = bp.Sequential(layers, input_shape=(9, 3), dtype="float64", device="host")
    x = np.random.default_rng(0).standard_normal((2, 9, 3))
    y, steps = net.forward(x).copy(), net.steps()
    for t in range(9):
        np.testing.assert_allclose(steps(x[:, t]), y[:, t], rtol=0, atol=1e-15)
    with pytest.raises(bp.ShapeError, match=r"a step got input of shape \(3, 3\): it takes \(2, 3\)"):
        steps(np.ones((3, 3)))
