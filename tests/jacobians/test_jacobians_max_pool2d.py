"""Max-pooling's guaranteed pattern, and the paper's exact one of a given input."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_cases import make_context

from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.jacobians.max_pool2d_exact import exact_max_pool2d
from bppsa_cupy.layers import AvgPool2d, MaxPool2d

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 7))


def pooling(draw):
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    return {
        "kernel_size": kernel,
        "stride": (draw(st.integers(1, 4)), draw(st.integers(1, 4))),
        "padding": tuple(draw(st.integers(0, side // 2)) for side in kernel),
        "ceil_mode": draw(st.booleans()),
    }


@settings(max_examples=60)
@given(st.data(), SHAPES)
def test_pattern_holds_every_candidate_and_no_other(data, shape):
    layer = MaxPool2d(**pooling(data.draw))
    try:
        out = layer.output_shape(shape)
    except ShapeError:
        return
    # Each input in turn is the one maximum of every window that holds it.
    size = int(np.prod(shape))
    units = np.eye(size).reshape(size, *shape)
    ctx = make_context(layer, get_device("host"), np.float64, shape)
    expected = layer.forward(ctx, units).reshape(size, -1) == 1
    pattern = layer.jacobian(shape).pattern
    assert pattern.shape == (size, np.prod(out))
    np.testing.assert_array_equal(pattern.to_scipy().toarray(), expected)


@settings(max_examples=60)
@given(st.data(), SHAPES, st.booleans())
def test_average_pooling_has_pytorchs_values(data, shape, counted):
    arguments = pooling(data.draw)
    layer = AvgPool2d(**arguments, count_include_pad=counted)
    try:
        layer.output_shape(shape)
    except ShapeError:
        return
    size = int(np.prod(shape))
    units = torch.eye(size, dtype=torch.float64).reshape(size, *shape)
    expected = torch.nn.AvgPool2d(**arguments, count_include_pad=counted)(units)
    jacobian = layer.jacobian(shape)
    values = np.full(jacobian.pattern.nnz, np.nan)
    jacobian.fill(get_device("host"), {}, {}, values)
    matrix = jacobian.pattern.to_scipy(values).toarray()
    np.testing.assert_allclose(matrix, expected.reshape(size, -1).numpy(), rtol=1e-15)
    assert jacobian.pattern.nnz == np.count_nonzero(expected)


@pytest.mark.parametrize("kernel, padding", [(2, 0), ((2, 3), 0), (3, 1)])
def test_exact_pattern_is_the_nonzeros(kernel, padding, rng):
    layer, shape = MaxPool2d(kernel, padding=padding), (3, 8, 9)
    ctx = make_context(layer, get_device("host"), np.float64, shape)
    layer.forward(ctx, rng.standard_normal((2, *shape)))
    jacobian = layer.jacobian(shape)
    values = np.empty((jacobian.pattern.nnz, 2))
    jacobian.fill(get_device("host"), {}, ctx.saved, values)
    for sample in range(2):
        pattern, data = exact_max_pool2d(layer.geometry(shape), ctx.saved["indices"][sample])
        guaranteed = jacobian.pattern.to_scipy(values[:, sample])
        np.testing.assert_array_equal(pattern.to_scipy(data).toarray(), guaranteed.toarray())
        assert pattern.nnz == np.prod(layer.output_shape(shape))


@pytest.mark.parametrize(
    "layer, indices",
    [
        (MaxPool2d(2, 1), np.zeros((1, 3, 3), int)),
        (MaxPool2d(2), np.full((1, 3, 3), 1.0)),
        (MaxPool2d(2), np.full((1, 3, 3), -1)),
        (MaxPool2d(2), np.full((1, 3, 3), 36)),
        (MaxPool2d(2), np.zeros((1, 2, 3), int)),
        (MaxPool2d(2), np.ma.masked_array(np.zeros((1, 3, 3), int), True)),
    ],
)
def test_exact_pattern_refuses_what_the_paper_does_not_cover(layer, indices):
    with pytest.raises(ShapeError):
        exact_max_pool2d(layer.geometry((1, 6, 6)), indices)
