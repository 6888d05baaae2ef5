"""Transposed Jacobians of all layers: patterns from geometry, values those of automatic differentiation."""

import numpy as np
import pytest
import torch
from layer_cases import CASE, ELEMENTS, LayerCase, make_context, reference_module
from marks import some
from tolerances import assert_close

from bppsa_cupy.devices import get_device
from bppsa_cupy.layers import MaxPool2d, ReLU

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")


@pytest.fixture(params=ELEMENTS, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> LayerCase:
    return request.param


def transposed_jacobians(module, x):
    """(B, d_in, d_out) by torch.autograd: one backward pass, of a copy of x for each output of a sample."""
    x = torch.from_numpy(x.astype(np.float64))
    outputs = module(x[:1]).numel()
    copies = x.repeat(outputs, *[1] * (x.ndim - 1)).requires_grad_()
    y = module(copies).reshape(outputs, len(x), outputs)
    (gradient,) = torch.autograd.grad(y.diagonal(dim1=0, dim2=2).sum(), copies)
    return gradient.reshape(outputs, len(x), -1).permute(1, 2, 0).numpy()


def filled(jacobian, device, ctx, batch):
    """The values on the host, from a buffer that held NaN; also those of a second fill."""
    shape = (jacobian.pattern.nnz,) if jacobian.shared else (jacobian.pattern.nnz, batch)
    values = device.asarray(np.full(shape, np.nan, ctx.dtype))
    jacobian.fill(device, ctx.parameters, ctx.saved, values)
    return device.to_host(values).copy()


@pytest.mark.parametrize("dtype", some(np.dtype("float64"), long=(np.dtype("float32"),)), ids=str)
@pytest.mark.parametrize("batch", [1, 3])
def test_values_are_autograds(case, batch, device, dtype, rng):
    layer = case.make()
    ctx = make_context(layer, device, dtype, case.input_shape, training=False)
    x = rng.standard_normal((batch, *case.input_shape)).astype(dtype)
    layer.forward(ctx, device.asarray(x))
    jacobian = layer.jacobian(case.input_shape)
    values = filled(jacobian, device, ctx, batch)
    expected = transposed_jacobians(reference_module(case, ctx), x)
    for sample in range(batch):
        ours = jacobian.pattern.to_scipy(values if jacobian.shared else values[:, sample]).toarray()
        assert_close(ours.astype(dtype), expected[sample])


def test_pattern_is_of_the_geometry_alone(case, rng):
    layer, again, device = case.make(), case.make(), get_device("host")
    pattern = layer.jacobian(case.input_shape).pattern
    assert pattern.shape == (np.prod(case.input_shape), np.prod(layer.output_shape(case.input_shape)))
    ctx = make_context(layer, device, np.float64, case.input_shape)
    layer.forward(ctx, device.asarray(rng.standard_normal((2, *case.input_shape))))
    assert layer.jacobian(case.input_shape).pattern == pattern == again.jacobian(case.input_shape).pattern


def test_large_batches_are_transposed_whole(device, rng):
    # More samples and features than a tile of the transposition has, neither a multiple of it.
    for name in ("ReLU", "Tanh", "Sigmoid", "MaxPool2d overlapping"):
        case = CASE[name]
        layer, batch = case.make(), 37
        ctx = make_context(layer, device, np.float64, case.input_shape)
        x = rng.standard_normal((batch, *case.input_shape))
        jacobian = layer.jacobian(case.input_shape)
        layer.forward(ctx, device.asarray(x))
        together = filled(jacobian, device, ctx, batch)
        for sample in range(batch):
            layer.forward(ctx, device.asarray(x[sample : sample + 1]))
            np.testing.assert_array_equal(filled(jacobian, device, ctx, 1)[:, 0], together[:, sample])


def test_parallel_parts_cover_everything(rng):
    # Above the size where the host's loops are cut into parts.
    shape, batch, device = (5, 61, 67), 9, get_device("host")
    x = rng.standard_normal((batch, *shape))
    ctx = make_context(ReLU(), device, np.float64, shape)
    y = ReLU().forward(ctx, x)
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    np.testing.assert_array_equal(ReLU().vjp(ctx, x), np.where(x > 0, x, 0))
    values = filled(ReLU().jacobian(shape), device, ctx, batch)
    np.testing.assert_array_equal(values, (x > 0).reshape(batch, -1).T)
    pool = MaxPool2d(2)
    ctx = make_context(pool, device, np.float64, shape)
    pool.forward(ctx, x)
    jacobian = pool.jacobian(shape)
    values = filled(jacobian, device, ctx, batch)
    expected = ctx.saved["indices"].reshape(batch, -1)[:, jacobian.pattern.indices]
    np.testing.assert_array_equal(values, (expected == jacobian.pattern.rows() % (61 * 67)).T)
