"""Laws that every layer obeys, beside PyTorch's module of the same name; and values that need care."""

import warnings

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_cases import (
    CASES,
    ELEMENTS,
    LayerCase,
    make_context,
    mask_of,
    reference_gradient,
    reference_module,
)
from tolerances import assert_close
from torch import nn

import bppsa_cupy as bp
from bppsa_cupy.devices import get_device
from bppsa_cupy.layers import LAYERS
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
    layer.parameter_gradients(ctx, device.asarray(gradient))
    input_gradient = layer.vjp(ctx, device.asarray(gradient))

    assert_close(device.to_host(y), reference_y.detach().numpy(), case.length)
    assert_close(device.to_host(input_gradient), reference_x.grad.numpy(), case.length * gradient.shape[1])
    assert set(ctx.gradients) == set(layer.parameter_shapes()) == set(dict(module.named_parameters()))
    for name, ours in ctx.gradients.items():
        assert_close(device.to_host(ours), reference_gradient(module, name), case.length * positions)


@pytest.mark.parametrize("training", [False, True])
def test_every_order_of_the_backward_pass_has_the_same_bits(case, training, rng):
    """Also where the input's gradient is left out, and where another pass goes back in between."""
    layer, host, results, later = case.make(), get_device("host"), [], []
    x = rng.standard_normal((2, 3, *case.input_shape))
    gradients = rng.standard_normal((2, 3, *layer.output_shape(case.input_shape)))
    contexts = [make_context(layer, host, np.float64, case.input_shape, training=training) for _ in range(5)]
    for number, ctx in enumerate(contexts):
        layer.forward(ctx, x[number % 2].copy())
    for ctx, gradient in zip(contexts[:2], gradients, strict=True):
        results.append(layer.backward(ctx, gradient.copy(), True))
    for ctx, gradient in zip(contexts[2:], gradients, strict=False):
        results.append(backward_input_first(layer, ctx, gradient, True, later))
    assert layer.backward(contexts[4], gradients[0].copy(), False) is None
    for write in later:
        write()
    for number, first, other in ((0, 0, 2), (1, 1, 3), (0, 0, 4)):
        if other < 4:
            np.testing.assert_array_equal(results[other], results[number])
        for name, gradient in contexts[first].gradients.items():
            np.testing.assert_array_equal(contexts[other].gradients[name], gradient, err_msg=name)


def test_a_smaller_batch_follows_a_larger(case, rng):
    layer, device = case.make(), get_device("host")
    x = rng.standard_normal((4, *case.input_shape))
    ctx = make_context(layer, device, np.float64, case.input_shape, training=False)
    full = device.to_host(layer.forward(ctx, device.asarray(x))).copy()
    part = device.to_host(layer.forward(ctx, device.asarray(x[1:3])))
    assert_close(part, full[1:3], case.length)


def test_config_makes_the_layer_again(case):
    layer = case.make()
    again = type(layer)(**layer.config(), **({"mask": layer.mask} if hasattr(layer, "mask") else {}))
    assert again.config() == layer.config() and repr(again) == repr(layer)
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
        mask = np.ones(array.shape, bool) & mask_of(layer, name)
        assert not array[~mask].any()
        if mask.sum() > 20:
            assert np.abs(array).max() > bound * 0.7


@pytest.mark.parametrize("case", ELEMENTS, ids=lambda case: case.name)
def test_every_planned_method_gives_the_gradients_of_back_propagation(case, rng):
    layers = [bp.Dropout(0.3), case.make(), bp.Flatten(), bp.Tanh()]
    net = bp.Sequential(layers, case.input_shape, dtype="float64", device="host")
    for training in (True, False):
        net.training = training
        net.use(net.plan(batch_size=3))
        y = net.forward(rng.standard_normal((3, *case.input_shape)))
        gradient, results = rng.standard_normal(y.shape), {}
        for method in ("bp", "linear", "blelloch", "hybrid"):
            by_input = net.backward(gradient, method, input_gradient=True).copy()
            results[method] = {"input": by_input, **net.gradients.to_host()}
        for method, arrays in results.items():
            for name, array in arrays.items():
                label = f"{method} {name}"
                np.testing.assert_allclose(array, results["bp"][name], rtol=1e-10, atol=1e-11, err_msg=label)


def test_every_layer_has_a_case():
    """Layers of cells and linear recurrences have tests of their own."""
    elsewhere = bp.CellLayer, bp.LinearRecurrent
    others = {name for name, kind in LAYERS.items() if issubclass(kind, elsewhere)}
    assert {type(case.make()).__name__ for case in CASES} == set(LAYERS) - others


# ---- values that need care ----


def forward_and_vjp(layer, device, x, gradient):
    ctx = make_context(layer, device, x.dtype, x.shape[1:])
    y = layer.forward(ctx, device.asarray(x))
    return device.to_host(y), device.to_host(layer.vjp(ctx, device.asarray(gradient))), ctx


def test_relu_at_zero_infinity_and_nan(device):
    x = np.array([[-np.inf, -1.0, -0.0, 0.0, 1e-300, np.inf, np.nan]])
    y, result, _ = forward_and_vjp(bp.ReLU(), device, x, np.full_like(x, np.inf))
    np.testing.assert_array_equal(y, [[0, 0, 0, 0, 1e-300, np.inf, np.nan]])
    np.testing.assert_array_equal(result, [[0, 0, 0, 0, np.inf, np.inf, np.inf]])


def logistic(z):
    return 1 / (1 + mpmath.exp(-z))


def gelu_by_tanh(x):
    return x * logistic(2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))


#: Layers, with their functions to any number of digits, and their values and slopes far below and above 0.
EXACT = [
    (bp.Tanh(), mpmath.tanh, (-1, 0), (1, 0)),
    (bp.Sigmoid(), logistic, (0, 0), (1, 0)),
    (bp.LeakyReLU(), lambda x: x if x > 0 else mpmath.mpf(0.01) * x, (None, 0.01), (None, 1)),
    (bp.ELU(2.0), lambda x: x if x > 0 else 2 * mpmath.expm1(x), (-2, 0), (None, 1)),
    (bp.SiLU(), lambda x: x * logistic(x), (0, 0), (None, 1)),
    (bp.Softplus(2.0, 30.0), lambda x: mpmath.log1p(mpmath.exp(2 * x)) / 2, (0, 0), (None, 1)),
    (bp.GELU(), lambda x: x * mpmath.ncdf(x), (0, 0), (None, 1)),
    (bp.GELU("tanh"), gelu_by_tanh, (0, 0), (None, 1)),
]


@pytest.mark.parametrize("layer, function, low, high", EXACT, ids=[repr(row[0]) for row in EXACT])
def test_activations_are_exact_and_do_not_overflow(layer, function, low, high, device, dtype):
    x = np.concatenate([np.linspace(-6, 6, 48), [-1e-3, 1e-3, -1e-30, 1e-30, 14.0]]).astype(dtype)
    y, slope, _ = forward_and_vjp(layer, device, x[None], np.ones_like(x)[None])
    with mpmath.workdps(60):
        points = [mpmath.mpf(float(value)) for value in x]
        exact = np.array([float(function(point)) for point in points])
        rises = np.array([float(mpmath.diff(function, point)) for point in points])
    # Where e^z or a distribution falls steeply, an error in z of half an ulp is one of |z| / 2 in it.
    steep = 0 if isinstance(layer, bp.Tanh | bp.Sigmoid) else np.maximum(-x, 0) * np.abs(x)
    assert np.all(np.abs(y[0] - exact) <= 4 * (1 + steep) * np.spacing(np.abs(exact).astype(dtype)))
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(slope[0], rises, rtol=8 * eps, atol=4 * eps)

    far = np.array([[-1e30, -1e4, -200, 200, 1e4, 1e30, np.nan]], dtype)
    y, slope, _ = forward_and_vjp(layer, device, far, np.ones_like(far))
    for side, (value, rise) in ((slice(0, 3), low), (slice(3, 6), high)):
        wanted = (rise * far[0, side]) if value is None else [value] * 3
        np.testing.assert_allclose(y[0, side], wanted, rtol=1e-6, atol=1e-30)
        np.testing.assert_allclose(slope[0, side], rise, rtol=1e-6, atol=1e-30)
    assert np.isnan(y[0, 6]) and (isinstance(layer, bp.LeakyReLU) or np.isnan(slope[0, 6]))


@pytest.mark.parametrize("stride, padding", [(2, 0), (1, 1), (3, 1)])
def test_max_pooling_picks_as_pytorch(stride, padding, device, rng):
    layer = bp.MaxPool2d(3, stride, padding)
    # Few distinct values, so that ties are common; and some NaN and infinities.
    x = rng.integers(-1, 2, (4, 3, 9, 8)).astype(float)
    x[rng.random(x.shape) < 0.05] = np.nan
    x[rng.random(x.shape) < 0.1] = -np.inf
    x[0, 0] = -np.inf
    gradient = rng.standard_normal((4, *layer.output_shape((3, 9, 8))))
    y, result, ctx = forward_and_vjp(layer, device, x, gradient)
    module = torch.nn.MaxPool2d(3, stride, padding, return_indices=True)
    reference_x = torch.from_numpy(x).requires_grad_()
    reference_y, reference_indices = module(reference_x)
    reference_y.backward(torch.from_numpy(gradient))
    np.testing.assert_array_equal(y, reference_y.detach().numpy())
    np.testing.assert_array_equal(device.to_host(ctx.saved["indices"]), reference_indices.numpy())
    np.testing.assert_allclose(result, reference_x.grad.numpy(), rtol=1e-14, atol=1e-14)


# ---- drawn settings ----


def sizes(least, most):
    size = st.integers(least, most)
    return st.one_of(size, st.tuples(size), st.tuples(size, size))


def pairs(least, most):
    return st.one_of(st.integers(least, most), st.tuples(*[st.integers(least, most)] * 2))


IMAGES = st.tuples(st.integers(1, 4), st.integers(1, 13), st.integers(1, 13))
POOLING = {"stride": sizes(1, 4), "padding": sizes(0, 2), "ceil_mode": st.booleans()}
#: The arguments of each layer of windows: required and optional ones.
DRAWN = {
    "Conv2d": (
        {
            "in_channels": st.integers(1, 4), "out_channels": st.integers(1, 6), "kernel_size": pairs(1, 4),
            "stride": pairs(1, 3), "padding": st.one_of(pairs(0, 3), st.sampled_from(["same", "valid"])),
            "dilation": pairs(1, 3), "groups": st.integers(1, 3), "bias": st.booleans(),
        },
        {},
    ),
    "MaxPool2d": ({"kernel_size": pairs(1, 4)}, POOLING),
    "AvgPool2d": (
        {"kernel_size": sizes(1, 4)},
        {**POOLING, "count_include_pad": st.booleans()},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
@settings(max_examples=75)
@given(st.data())
def test_windows_of_any_settings_agree_with_pytorch_or_are_refused_by_both(dtype, name, data):
    required, optional = DRAWN[name]
    arguments = data.draw(st.fixed_dictionaries(required, optional=optional))
    shape, batch, seed = (data.draw(s) for s in (IMAGES, st.integers(1, 3), st.integers(0, 2**32)))
    if name == "Conv2d" and seed % 8:  # mostly channels that fit
        groups = int(np.gcd.reduce([shape[0], arguments["out_channels"], 6 // arguments["groups"]]))
        arguments = {**arguments, "in_channels": shape[0], "groups": groups}
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((batch, *shape)).astype(dtype)
    reference_x = torch.from_numpy(x.astype(np.float64)).requires_grad_()
    ours, theirs = getattr(bp, name), getattr(nn, name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = theirs(**arguments).double()
            module(reference_x)
    except (ValueError, RuntimeError):
        with pytest.raises((bp.ArgumentError, bp.ShapeError)):
            ours(**arguments).output_shape(shape)
        return
    layer = ours(**arguments)
    ctx = make_context(layer, get_device("host"), dtype, shape, seed)
    with torch.no_grad():
        for parameter, array in ctx.parameters.items():
            getattr(module, parameter).copy_(torch.from_numpy(array.astype(np.float64)))
    reference_y = module(reference_x)
    assert layer.output_shape(shape) == tuple(reference_y.shape[1:])
    gradient = rng.standard_normal(reference_y.shape).astype(dtype)
    reference_y.backward(torch.from_numpy(gradient.astype(np.float64)))
    length = max(1, np.prod(layer.kernel_size)) * shape[0]
    assert_close(layer.forward(ctx, x), reference_y.detach().numpy(), length, scale=1.0)
    assert_close(layer.vjp(ctx, gradient), reference_x.grad.numpy(), length * gradient.shape[1], scale=1.0)
    layer.parameter_gradients(ctx, gradient)
    for parameter, array in ctx.gradients.items():
        wanted = getattr(module, parameter).grad.numpy()
        assert_close(array, wanted, batch * gradient[0].size, scale=1.0)


# ---- what is refused ----


def test_a_masked_layers_mask_cannot_be_written():
    layer = bp.Conv2d(1, 1, 2, mask=np.eye(2)[None, None])
    with pytest.raises(ValueError, match="read-only"):
        layer.mask[...] = True
