"""Activations that keep their slopes: exact to a few ulp, far out and near 0; arguments that are refused."""

import mpmath
import numpy as np
import pytest
from layer_cases import make_context

import bppsa_cupy as bp
from bppsa_cupy.devices import get_device

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


def test_parallel_parts_cover_everything(rng):
    # Above the size where the host's loops are cut into parts.
    x, device = rng.standard_normal((3, 5, 101, 103)), get_device("host")
    y, slope = forward(bp.LeakyReLU(0.5), device, x)
    np.testing.assert_array_equal(y, np.where(x > 0, x, 0.5 * x))
    np.testing.assert_array_equal(slope, np.where(x > 0, 1, 0.5))


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
