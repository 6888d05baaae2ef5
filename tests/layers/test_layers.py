"""Layers against PyTorch: outputs and gradients, at random settings and where values need care, on every
device; and what they refuse, with messages that name both sides."""

import warnings

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_cases import CASES, LayerCase, make_context, reference_gradient, reference_module
from tolerances import assert_close
from torch import nn

import bppsa_cupy as bp
from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import (
    LAYERS,
    AdaptiveAvgPool2d,
    AvgPool2d,
    CellLayer,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    Linear,
    LinearRecurrent,
    MaxPool2d,
    ReLU,
    Sigmoid,
    Tanh,
)
from bppsa_cupy.layers.stack import backward_input_first

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> LayerCase:
    return request.param


@pytest.mark.parametrize("batch", [1, 3])
def test_agrees_with_pytorch(case, batch, device, dtype, rng):
    layer = case.make()
    ctx = make_context(layer, device, dtype, case.input_shape)
    module = reference_module(case, ctx)
    x = rng.standard_normal((batch, *case.input_shape)).astype(dtype)
    reference_x = torch.from_numpy(x.astype(np.float64)).requires_grad_()
    reference_y = module(reference_x)
    gradient = rng.standard_normal(reference_y.shape).astype(dtype)
    reference_y.backward(torch.from_numpy(gradient.astype(np.float64)))

    y = layer.forward(ctx, device.asarray(x))
    assert ctx.saved["output"] is y
    assert y.shape[1:] == layer.output_shape(case.input_shape)
    positions = batch * gradient[0].size
    # Taken before and after: the input's gradient does not disturb the parameters' or the reverse.
    layer.parameter_gradients(ctx, device.asarray(gradient))
    input_gradient = layer.vjp(ctx, device.asarray(gradient))

    assert_close(device.to_host(y), reference_y.detach().numpy(), case.length)
    assert_close(device.to_host(input_gradient), reference_x.grad.numpy(), case.length * gradient.shape[1])
    assert set(ctx.gradients) == set(layer.parameter_shapes()) == set(dict(module.named_parameters()))
    for name, ours in ctx.gradients.items():
        assert_close(device.to_host(ours), reference_gradient(module, name), case.length * positions)


def test_passes_repeat_bit_for_bit(case, rng):
    layer, device = case.make(), get_device("host")
    x = rng.standard_normal((5, *case.input_shape))
    gradient = rng.standard_normal((5, *layer.output_shape(case.input_shape)))
    runs = []
    for _ in range(2):
        ctx = make_context(layer, device, np.float64, case.input_shape)
        y = layer.forward(ctx, device.asarray(x))
        layer.parameter_gradients(ctx, device.asarray(gradient))
        result = layer.vjp(ctx, device.asarray(gradient))
        runs.append([device.to_host(a).tobytes() for a in (y, result, *ctx.gradients.values())])
    assert runs[0] == runs[1]


@pytest.mark.parametrize("want_input", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_parameter_gradients_that_wait_have_the_same_bits(case, want_input, training, rng):
    """Also where another pass goes back in between, on buffers of its own."""
    layer, host, found, later = case.make(), get_device("host"), [], []
    x = rng.standard_normal((2, 3, *case.input_shape))
    gradients = rng.standard_normal((2, 3, *layer.output_shape(case.input_shape)))
    contexts = [make_context(layer, host, np.float64, case.input_shape, training=training) for _ in range(4)]
    for number, ctx in enumerate(contexts):
        layer.forward(ctx, x[number % 2].copy())
    for ctx, gradient in zip(contexts[:2], gradients, strict=True):
        found.append(layer.backward(ctx, gradient.copy(), want_input))
    for ctx, gradient in zip(contexts[2:], gradients, strict=True):
        found.append(backward_input_first(layer, ctx, gradient, want_input, later))
    for write in later:
        write()
    for number, (one, other) in enumerate(zip(contexts[:2], contexts[2:], strict=True)):
        assert (found[number] is None) == (found[number + 2] is None) == (not want_input)
        np.testing.assert_array_equal(found[number + 2], found[number])
        for name, gradient in one.gradients.items():
            np.testing.assert_array_equal(other.gradients[name], gradient, err_msg=name)


def test_a_smaller_batch_follows_a_larger(case, rng):
    layer, device = case.make(), get_device("host")
    x = rng.standard_normal((4, *case.input_shape))
    ctx = make_context(layer, device, np.float64, case.input_shape, training=False)
    whole = device.to_host(layer.forward(ctx, device.asarray(x))).copy()
    part = device.to_host(layer.forward(ctx, device.asarray(x[1:3])))
    assert_close(part, whole[1:3], case.length)


def test_config_makes_the_layer_again(case):
    layer = case.make()
    again = type(layer)(**layer.config(), **({"mask": layer.masks()["weight"]} if layer.masks() else {}))
    assert again.config() == layer.config()
    assert repr(again) == repr(layer)
    assert again.parameter_shapes() == layer.parameter_shapes()
    assert again.output_shape(case.input_shape) == layer.output_shape(case.input_shape)


def test_initial_parameters_are_pytorchs_distribution(case):
    layer = case.make()
    initial = layer.initialize(np.random.default_rng(1))
    assert {name: array.shape for name, array in initial.items()} == layer.parameter_shapes()
    torch.manual_seed(1)
    draws = [case.reference() for _ in range(50)]
    for name, array in initial.items():
        bound = max(module.get_parameter(name).detach().abs().max().item() for module in draws)
        assert np.abs(array).max() <= bound * 1.05
        kept = layer.masks().get(name, np.ones(array.shape, bool))
        assert not array[~kept].any()
        if kept.sum() > 20:
            assert np.abs(array).max() > bound * 0.7


def test_every_layer_has_a_case():
    """Layers of cells, linear recurrences and Embedding, whose input is indices, have tests of their own."""
    elsewhere = CellLayer, LinearRecurrent, Embedding
    others = {name for name, kind in LAYERS.items() if issubclass(kind, elsewhere)}
    assert {type(case.make()).__name__ for case in CASES} == set(LAYERS) - others


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


NORMAL, LOGISTIC = mpmath.ncdf, lambda z: 1 / (1 + mpmath.exp(-z))


def by_tanh(x):
    return LOGISTIC(2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))


#: Layers, with their functions to any number of digits. A slope that passes 0 is as exact as its terms.
EXACT = [
    (bp.LeakyReLU(), lambda x: x if x > 0 else mpmath.mpf(0.01) * x),
    (bp.ELU(2.0), lambda x: x if x > 0 else 2 * mpmath.expm1(x)),
    (bp.SiLU(), lambda x: x * LOGISTIC(x)),
    (bp.Softplus(2.0, 30.0), lambda x: mpmath.log1p(mpmath.exp(2 * x)) / 2),
    (bp.GELU(), lambda x: x * NORMAL(x)),
    (bp.GELU("tanh"), lambda x: x * by_tanh(x)),
]


def forward(layer, device, x):
    ctx = make_context(layer, device, x.dtype, x.shape[1:])
    y = device.to_host(layer.forward(ctx, device.asarray(x)))
    return y, device.to_host(layer.vjp(ctx, device.asarray(np.ones_like(x))))


@pytest.mark.parametrize(
    "layer, function", EXACT, ids=lambda value: repr(value) if isinstance(value, bp.Layer) else ""
)
def test_within_a_few_ulp(layer, function, device, dtype):
    x = np.concatenate([np.linspace(-6, 6, 48), [-1e-3, 1e-3, -1e-30, 1e-30, 14.0]]).astype(dtype)
    y, slope = forward(layer, device, x[None])
    with mpmath.workdps(60):
        points = [mpmath.mpf(float(value)) for value in x]
        exact = np.array([float(function(point)) for point in points])
        rises = np.array([float(mpmath.diff(function, point)) for point in points])
    # Where e^z or a distribution falls steeply, an error in z of half an ulp is one of |z| / 2 in it.
    steepness = 1 + np.maximum(-x, 0) * np.abs(x)
    spacing = np.spacing(np.abs(exact).astype(dtype))
    assert np.all(np.abs(y[0] - exact) <= 4 * steepness * spacing)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(slope[0], rises, rtol=8 * eps, atol=4 * eps)


@pytest.mark.parametrize(
    "layer, function", EXACT, ids=lambda value: repr(value) if isinstance(value, bp.Layer) else ""
)
def test_far_out_nothing_overflows(layer, function, device, dtype):
    x = np.array([[-1e30, -1e4, -200, 200, 1e4, 1e30, np.nan]], dtype)
    y, slope = forward(layer, device, x)
    low = {bp.LeakyReLU: 0.01 * x[0, :3], bp.ELU: [-2] * 3}.get(type(layer), [0] * 3)
    np.testing.assert_allclose(y[0], [*low, *x[0, 3:]], rtol=1e-6, atol=1e-30)
    flat = 0.01 if isinstance(layer, bp.LeakyReLU) else 0
    np.testing.assert_allclose(slope[0, :6], [flat] * 3 + [1] * 3, rtol=1e-6, atol=1e-30)
    assert isinstance(layer, bp.LeakyReLU) or np.isnan(slope[0, 6])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: bp.GELU("erf"), "approximate='erf': it takes 'none' or 'tanh'"),
        (lambda: bp.LeakyReLU(None), "LeakyReLU got negative_slope=None: it takes a finite number"),
        (lambda: bp.ELU(np.inf), "ELU got alpha=inf"),
        (lambda: bp.Softplus(0), "beta=0: it is divided by"),
        (lambda: bp.Softplus(1, np.nan), "threshold=nan"),
    ],
)
def test_arguments_that_are_refused(make, message):
    with pytest.raises(bp.ShapeError, match=message):
        make()


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


@settings(max_examples=75)
@given(CONVOLUTIONS, IMAGES, st.integers(1, 3), st.integers(0, 2**32))
def test_convolution(dtype, arguments, shape, batch, seed):
    # Mostly channels that fit; now and then some that do not.
    if seed % 8:
        arguments = {
            **arguments,
            "in_channels": shape[0],
            "groups": int(np.gcd.reduce([shape[0], arguments["out_channels"], 6 // arguments["groups"]])),
        }
    compare(Conv2d, nn.Conv2d, arguments, shape, batch, dtype, seed)


@settings(max_examples=75)
@given(MAX_POOLINGS, IMAGES, st.integers(1, 3), st.integers(0, 2**32))
def test_max_pooling(dtype, arguments, shape, batch, seed):
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


@settings(max_examples=75)
@given(AVG_POOLINGS, IMAGES, st.integers(1, 3), st.integers(0, 2**32))
def test_average_pooling(dtype, arguments, shape, batch, seed):
    compare(AvgPool2d, nn.AvgPool2d, arguments, shape, batch, dtype, seed)


REFUSED_ARGUMENTS = [
    (lambda: Conv2d(3, 6, 0), "Conv2d(3, 6, 0) got kernel_size=0: it takes an integer of at least 1"),
    (lambda: Conv2d(3, 6, (1, 2, 3)), "kernel_size=(1, 2, 3): it takes an integer or a pair"),
    (lambda: Conv2d(3, 6, 2.5), "kernel_size=2.5: it takes an integer or a pair"),
    (lambda: Conv2d(0, 6, 3), "Conv2d(0, 6, 3) got in_channels=0: it takes an integer of at least 1"),
    (lambda: Conv2d(3, 6, 3, groups=0), "got groups=0: it takes an integer of at least 1"),
    (lambda: Conv2d(3, 6, 3, groups=2), "groups=2: it must divide 3 input and 6 output channels"),
    (lambda: Conv2d(3, 6, 3, stride=0), "stride=0: it takes an integer of at least 1"),
    (lambda: Conv2d(3, 6, 3, dilation=0), "dilation=0: it takes an integer of at least 1"),
    (lambda: Conv2d(3, 6, 3, padding=-1), "padding=-1: it takes an integer of at least 0"),
    (lambda: Conv2d(3, 6, 3, padding="full"), "padding='full': as a word it takes 'same' or 'valid'"),
    (lambda: Conv2d(3, 6, 3, 2, "same"), "padding='same' and stride=2: 'same' takes stride 1"),
    (lambda: Conv2d(3, 6, 3, padding_mode="reflect"), "padding_mode='reflect': it takes 'zeros'"),
    (
        lambda: Conv2d(3, 6, 3, mask=np.ones((6, 3))),
        "mask of shape (6, 3): its weight has shape (6, 3, 3, 3)",
    ),
    (lambda: Linear(0, 3), "Linear got in_features=0: it takes an integer of at least 1"),
    (lambda: Linear(4, 3, mask=np.ones((4, 3))), "mask of shape (4, 3): its weight has shape (3, 4)"),
    (
        lambda: Linear(2, 3, mask=np.ma.masked_array(np.ones((3, 2)), np.eye(3, 2))),
        "Linear got mask as a masked array: it takes one without a mask, as array.filled(0)",
    ),
    (lambda: Linear(2, 1, mask=[[1, np.nan]]), "Linear got a mask that is nan at (0, 1): it takes 0 or 1"),
    (lambda: Linear(2, 1, mask=[["1", ""]]), "Linear got mask of <U1: it takes numbers"),
    (lambda: Linear(2, 2, mask=[[1], [1, 0]]), "Linear got mask that is no array"),
    (lambda: MaxPool2d(0), "kernel_size=0: it takes an integer of at least 1"),
    (lambda: MaxPool2d(3, padding=2), "padding=(2, 2) and kernel_size=(3, 3): padding is at most half"),
    (lambda: MaxPool2d(3, stride=0), "stride=0: it takes an integer of at least 1"),
    (lambda: AvgPool2d(2, padding=(1, 2)), "padding=(1, 2) and kernel_size=(2, 2): padding is at most half"),
    (lambda: AvgPool2d(2, divisor_override=0), "divisor_override=0: it must not be 0"),
    (lambda: AvgPool2d(2, divisor_override=2.7), "divisor_override=2.7: it takes an integer"),
    (lambda: AvgPool2d(2, divisor_override=float("nan")), "divisor_override=nan: it takes an integer"),
    (lambda: AvgPool2d(2, divisor_override=True), "divisor_override=True: it takes an integer"),
    (lambda: AvgPool2d(2, count_include_pad="no"), "count_include_pad='no': it takes True or False"),
    (lambda: AvgPool2d(2, ceil_mode="False"), "AvgPool2d(2) got ceil_mode='False': it takes True or False"),
    (lambda: AvgPool2d(2, padding=()), "padding=(): it takes an integer or a pair of them"),
    (lambda: MaxPool2d(2, ceil_mode=2), "MaxPool2d(2) got ceil_mode=2: it takes True or False"),
    (lambda: MaxPool2d(True), "kernel_size=True: it takes an integer of at least 1"),
    (lambda: MaxPool2d((2, 1.5)), "kernel_size=(2, 1.5): it takes an integer or a pair of them"),
    (lambda: Linear(4, 3, bias="no"), "Linear got bias='no': it takes True or False"),
    (lambda: Linear(4, 2**70), f"out_features={2**70}: it takes an integer of at least 1 and at most"),
    (lambda: Conv2d(3, 6, 3, bias="no"), "Conv2d(3, 6, 3) got bias='no': it takes True or False"),
    (lambda: Dropout("0.5"), "Dropout got p='0.5': it takes a probability from 0 to 1"),
    (lambda: Dropout(True), "Dropout got p=True: it takes a probability from 0 to 1"),
    (lambda: Dropout(10**400), "it takes a probability from 0 to 1"),
    (lambda: Flatten(1.7), "Flatten got start_dim=1.7: it takes an integer"),
    (lambda: Flatten(1, "2"), "Flatten got end_dim='2': it takes an integer"),
    (lambda: AdaptiveAvgPool2d(0), "output_size=0: it takes an integer of at least 1"),
    (lambda: AdaptiveAvgPool2d((1, 2, 3)), "output_size=(1, 2, 3): it takes an integer, None or a pair"),
    (lambda: AdaptiveAvgPool2d((1.5, 2)), "output_size=(1.5, 2): it takes an integer, None or a pair"),
    (lambda: Flatten(0), "would join the batch, axis 0: start at 1"),
]


REFUSED_INPUTS = [
    (
        AdaptiveAvgPool2d(1),
        (64,),
        "AdaptiveAvgPool2d got input (64,): it takes images",
    ),
    (AdaptiveAvgPool2d(1), (64, 0, 3), "got input (64, 0, 3): every size must be at least 1"),
    (Conv2d(3, 6, 5), (4, 32, 32), "Conv2d(3, 6, 5) got input (4, 32, 32): 4 channels, it takes 3"),
    (Conv2d(3, 6, 5), (3, 32), "got input (3, 32): it takes images (channels, height, width)"),
    (Conv2d(3, 6, 5), (3, 4, 32), "it is smaller than the kernel, which spans 5 by 5"),
    (Conv2d(3, 6, 3, dilation=2), (3, 5, 4), "it is smaller than the kernel, which spans 5 by 5"),
    (Conv2d(3, 6, 5, padding=2), (3, 0, 4), "every size must be at least 1"),
    (Linear(7, 5), (6,), "Linear(7, 5) got input (6,): its last size must be 7"),
    (Linear(7, 5), (), "its last size must be 7"),
    (MaxPool2d(3), (2, 2, 5), "got an input of (2, 5) padded by (0, 0): a window must fit"),
    (MaxPool2d(3), (7,), "it takes images (channels, height, width)"),
    (AvgPool2d(3), (2, 5, 2), "a window must fit"),
    (Flatten(2, 3), (4, 5), "with the batch it has axes 0 to 2"),
    (Flatten(-1, 1), (4, 5), "in rising order"),
    (Flatten(), (), "with the batch it has axes 0 to 0"),
]


@pytest.mark.parametrize("make, message", REFUSED_ARGUMENTS)
def test_refused_arguments(make, message):
    with pytest.raises(ShapeError) as raised:
        make()
    assert message in str(raised.value)


@pytest.mark.parametrize("layer, shape, message", REFUSED_INPUTS)
def test_refused_inputs(layer, shape, message):
    for ask in (layer.output_shape, *([] if isinstance(layer, (Flatten, Linear)) else [layer.jacobian])):
        with pytest.raises(ShapeError) as raised:
            ask(shape)
        assert message in str(raised.value)


def test_a_masked_layers_mask_cannot_be_written():
    layer = Conv2d(1, 1, 2, mask=np.eye(2)[None, None])
    with pytest.raises(ValueError, match="read-only"):
        layer.masks()["weight"][...] = True
