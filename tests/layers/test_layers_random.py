"""Convolution and pooling in random settings: what PyTorch takes we take, with its results; what it
refuses we refuse."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_cases import make_context
from tolerances import assert_close
from torch import nn

from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import AvgPool2d, Conv2d, MaxPool2d

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")


def sizes(least, most):
    return st.one_of(st.integers(least, most), st.tuples(*[st.integers(least, most)] * 2))


IMAGES = st.tuples(st.integers(1, 4), st.integers(1, 13), st.integers(1, 13))

CONVOLUTIONS = st.fixed_dictionaries(
    {
        "in_channels": st.integers(1, 4),
        "out_channels": st.integers(1, 6),
        "kernel_size": sizes(1, 4),
        "stride": sizes(1, 3),
        "padding": st.one_of(sizes(0, 3), st.sampled_from(["same", "valid"])),
        "dilation": sizes(1, 3),
        "groups": st.integers(1, 3),
        "bias": st.booleans(),
    }
)

MAX_POOLINGS = st.fixed_dictionaries(
    {"kernel_size": sizes(1, 4)},
    optional={
        "stride": sizes(1, 4),
        "padding": sizes(0, 2),
        "dilation": sizes(1, 3),
        "ceil_mode": st.booleans(),
    },
)

AVG_POOLINGS = st.fixed_dictionaries(
    {"kernel_size": sizes(1, 4)},
    optional={
        "stride": sizes(1, 4),
        "padding": sizes(0, 2),
        "ceil_mode": st.booleans(),
        "count_include_pad": st.booleans(),
        "divisor_override": st.sampled_from([None, 1, -3, 0]),
    },
)


def compare(ours, theirs, arguments, shape, batch, dtype, seed):
    """The same arguments and input to both; either both refuse or both agree."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((batch, *shape)).astype(dtype)
    reference_x = torch.from_numpy(x.astype(np.float64)).requires_grad_()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = theirs(**arguments).double()
            reference_y = module(reference_x)
    except (ValueError, RuntimeError):
        with pytest.raises(ShapeError):
            ours(**arguments).output_shape(shape)
        return
    layer = ours(**arguments)
    assert layer.output_shape(shape) == tuple(reference_y.shape[1:])
    ctx = make_context(layer, get_device("host"), dtype, shape, seed)
    with torch.no_grad():
        for name, array in ctx.parameters.items():
            getattr(module, name).copy_(torch.from_numpy(array.astype(np.float64)))
    reference_x.grad = None
    reference_y = module(reference_x)
    gradient = rng.standard_normal(reference_y.shape).astype(dtype)
    reference_y.backward(torch.from_numpy(gradient.astype(np.float64)))
    length = max(1, np.prod(layer.kernel_size)) * shape[0]
    assert_close(layer.forward(ctx, x), reference_y.detach().numpy(), length, scale=1.0)
    assert_close(layer.vjp(ctx, gradient), reference_x.grad.numpy(), length * gradient.shape[1], scale=1.0)
    layer.parameter_gradients(ctx, gradient)
    for name, array in ctx.gradients.items():
        assert_close(array, getattr(module, name).grad.numpy(), batch * gradient[0].size, scale=1.0)


@settings(max_examples=150)
@given(
    CONVOLUTIONS, IMAGES, st.integers(1, 3), st.sampled_from(["float32", "float64"]), st.integers(0, 2**32)
)
def test_convolution(arguments, shape, batch, dtype, seed):
    # Mostly channels that fit; now and then some that do not.
    if seed % 8:
        arguments = {
            **arguments,
            "in_channels": shape[0],
            "groups": int(np.gcd.reduce([shape[0], arguments["out_channels"], 6 // arguments["groups"]])),
        }
    compare(Conv2d, nn.Conv2d, arguments, shape, batch, dtype, seed)


@settings(max_examples=150)
@given(
    MAX_POOLINGS, IMAGES, st.integers(1, 3), st.sampled_from(["float32", "float64"]), st.integers(0, 2**32)
)
def test_max_pooling(arguments, shape, batch, dtype, seed):
    if window_without_candidate(arguments, shape):
        return
    compare(MaxPool2d, nn.MaxPool2d, arguments, shape, batch, dtype, seed)


def window_without_candidate(arguments, shape):
    """Whether some window sees no input at all: there PyTorch's backward pass writes out of bounds."""
    try:
        geometry = MaxPool2d(**arguments).geometry(shape)
    except ShapeError:
        return False
    return any(np.unique(axis.taps().outputs).size < axis.outputs for axis in geometry.axes)


@settings(max_examples=150)
@given(
    AVG_POOLINGS, IMAGES, st.integers(1, 3), st.sampled_from(["float32", "float64"]), st.integers(0, 2**32)
)
def test_average_pooling(arguments, shape, batch, dtype, seed):
    compare(AvgPool2d, nn.AvgPool2d, arguments, shape, batch, dtype, seed)
