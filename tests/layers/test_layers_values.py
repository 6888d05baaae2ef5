"""Elementwise layers and max-pooling at the values where care is needed: NaN, ties, saturation."""

import numpy as np
import pytest
import torch
from layer_cases import make_context
from tolerances import assert_close

from bppsa_cupy.layers import AvgPool2d, MaxPool2d, ReLU, Sigmoid, Tanh


def forward_and_vjp(layer, device, x, gradient):
    ctx = make_context(layer, device, x.dtype, x.shape[1:])
    y = layer.forward(ctx, device.asarray(x))
    return device.to_host(y), device.to_host(layer.vjp(ctx, device.asarray(gradient))), ctx


def test_relu_at_zero_infinity_and_nan(device):
    x = np.array([[-np.inf, -1.0, -0.0, 0.0, 1e-300, np.inf, np.nan]])
    y, result, _ = forward_and_vjp(ReLU(), device, x, np.full_like(x, np.inf))
    np.testing.assert_array_equal(y, [[0, 0, 0, 0, 1e-300, np.inf, np.nan]])
    np.testing.assert_array_equal(result, [[0, 0, 0, 0, np.inf, np.inf, np.inf]])


@pytest.mark.parametrize("layer", [Tanh(), Sigmoid()], ids=["Tanh", "Sigmoid"])
def test_within_four_ulp(layer, device, dtype):
    x = np.concatenate([np.linspace(-120, 120, 4001), [0.0, -0.0, 1e-30, -1e-30]]).astype(dtype)[None]
    y, _, _ = forward_and_vjp(layer, device, x, np.ones_like(x))
    wide = x.astype(np.longdouble)
    exact = np.tanh(wide) if isinstance(layer, Tanh) else 1 / (1 + np.exp(-wide))
    spacing = np.spacing(np.abs(exact.astype(dtype)))
    assert np.all(np.abs(y - exact) <= 4 * spacing)


@pytest.mark.parametrize("layer", [Tanh(), Sigmoid()], ids=["Tanh", "Sigmoid"])
def test_saturates_without_warning(layer, device, dtype):
    x = np.array([[-np.inf, -1e4, 1e4, np.inf, np.nan]], dtype)
    y, result, _ = forward_and_vjp(layer, device, x, np.ones_like(x))
    low = -1 if isinstance(layer, Tanh) else 0
    np.testing.assert_array_equal(y, [[low, low, 1, 1, np.nan]])
    np.testing.assert_array_equal(result, [[0, 0, 0, 0, np.nan]])


@pytest.mark.parametrize("stride, padding, dilation", [(2, 0, 1), (1, 1, 1), (1, 1, 2), (3, 1, 1)])
def test_max_pooling_picks_as_pytorch(stride, padding, dilation, device, rng):
    layer = MaxPool2d(3, stride, padding, dilation)
    # Few distinct values, so that ties are common; and some NaN and infinities.
    x = rng.integers(-1, 2, (4, 3, 9, 8)).astype(float)
    x[rng.random(x.shape) < 0.05] = np.nan
    x[rng.random(x.shape) < 0.1] = -np.inf
    x[0, 0] = -np.inf
    gradient = rng.standard_normal((4, *layer.output_shape((3, 9, 8))))
    y, result, ctx = forward_and_vjp(layer, device, x, gradient)
    module = torch.nn.MaxPool2d(3, stride, padding, dilation, return_indices=True)
    reference_x = torch.from_numpy(x).requires_grad_()
    reference_y, reference_indices = module(reference_x)
    reference_y.backward(torch.from_numpy(gradient))
    np.testing.assert_array_equal(y, reference_y.detach().numpy())
    np.testing.assert_array_equal(device.to_host(ctx.saved["indices"]), reference_indices.numpy())
    np.testing.assert_allclose(result, reference_x.grad.numpy(), rtol=1e-14, atol=1e-14)


def test_a_window_without_candidates_passes_no_gradient(device):
    # Both taps, at -1 and 1, fall outside an input of one element.
    layer = MaxPool2d(2, 1, 1, 2)
    x, gradient = np.ones((2, 1, 1, 1)), np.ones((2, 1, 1, 1))
    y, result, ctx = forward_and_vjp(layer, device, x, gradient)
    assert np.all(y == -np.inf) and not result.any()
    assert np.all(device.to_host(ctx.saved["indices"]) == -1)
    assert layer.jacobian((1, 1, 1)).pattern.nnz == 0


@pytest.mark.parametrize(
    "arguments",
    [{"padding": (1,)}, {"stride": (1,)}, {"kernel_size": (2,)}, {"kernel_size": [2], "stride": [3]}],
)
def test_a_size_in_a_tuple_of_one_is_that_of_both_axes(arguments, device, rng):
    """As PyTorch's pooling takes it."""
    arguments = {"kernel_size": 2, **arguments}
    x = rng.standard_normal((2, 3, 5, 6))
    expected = torch.nn.AvgPool2d(**arguments)(torch.from_numpy(x)).numpy()
    y, _, _ = forward_and_vjp(AvgPool2d(**arguments), device, x, np.ones_like(expected))
    assert_close(y, expected)
