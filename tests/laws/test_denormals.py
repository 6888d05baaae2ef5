"""Gradients that vanish end at 0 on the host, and a thread's own arithmetic stays as it was."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from marks import some, some_rows
from recurrent_reference import reference_of

import bppsa_cupy as bp
from bppsa_cupy.raw_kernels.twins.simd.denormals import IS_X86, flush_denormals, restore_denormals
from bppsa_cupy.system.compiled import compiled

LAYERS = {"RNN": bp.RNN, "GRU": bp.GRU, "LSTM": bp.LSTM}
x86 = pytest.mark.skipif(not IS_X86, reason="denormal numbers are flushed on x86 alone")


@compiled()
def scale(values, factor, out, is_flushed):
    former = flush_denormals() if is_flushed else np.uint32(0)
    for i in range(values.size):
        out[i] = values[i] * factor
    if is_flushed:
        restore_denormals(former)


@x86
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_and_operands(dtype):
    tiny = np.finfo(dtype).tiny
    values, out = np.array([tiny, tiny / 2, 1], dtype), np.empty(3, dtype)
    assert values[1] > 0
    for factor, flushed in ((dtype(0.5), [0, 0, 0.5]), (dtype(1024), [1024 * tiny, 0, 1024])):
        scale(values, factor, out, True)
        np.testing.assert_array_equal(out, np.array(flushed, dtype))
        scale(values, factor, out, False)
        np.testing.assert_array_equal(out, values * factor)
        assert out[1] > 0


@x86
@pytest.mark.parametrize("name", some("RNN", "GRU", long=["LSTM"]))
@pytest.mark.parametrize("hidden, batch", some_rows((8, 19), (40, 3), long=[(8, 16), (8, 1)]))
def test_vanishing_gradients_end_at_zero(name, hidden, batch, dtype):
    layer = LAYERS[name](2, hidden, outputs="last")
    steps, factor = (300, 0.5) if dtype == "float32" else (1200, 0.1)
    net = bp.Sequential([layer], input_shape=(steps, 2), dtype=dtype, device="host")
    for value in net.parameters.values():
        value *= factor
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, steps, 2)).astype(dtype)
    g = rng.standard_normal((batch, hidden)).astype(dtype)
    net.forward(x)
    actual = net.backward(g, input_gradient=True)
    inputs = torch.tensor(x.astype(np.float64), requires_grad=True)
    output = reference_of(net).double()(inputs)[0][:, -1]
    output.backward(torch.tensor(g.astype(np.float64)))
    expected = inputs.grad.numpy()
    tiny = np.finfo(dtype).tiny
    least = np.abs(expected).min()
    assert least < tiny / 100  # they do vanish
    assert np.abs(actual - expected).max() <= 1e-4 * np.abs(expected).max()
    assert not np.any((actual != 0) & (np.abs(actual) < tiny))
    if dtype == "float32":  # in float64, PyTorch's own factors are denormal
        assert np.all(actual[np.abs(expected) < tiny / 100] == 0)
    assert tiny * dtype.type(0.5) > 0
