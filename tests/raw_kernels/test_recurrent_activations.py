"""tanh, the logistic function and e^x of the twins: within 4 ulp over a sweep, on numbers and on lanes."""

import numpy as np
import pytest
import scipy.special

from bppsa_cupy.raw_kernels.twins.simd.activations import (
    expm1,
    exponential,
    scaled,
    scaled_twice,
    sigmoid,
    tanh,
)
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, load, store
from bppsa_cupy.system.compiled import compiled


@compiled()
def tanh_of_numbers(x, y):
    for i in range(x.size):
        y[i] = tanh(x[i])


@compiled()
def sigmoid_of_numbers(x, y):
    for i in range(x.size):
        y[i] = sigmoid(x[i])


@compiled()
def exponential_of_numbers(x, y):
    for i in range(x.size):
        y[i] = exponential(x[i])


@compiled()
def tanh_of_lanes(x, y):
    for i in range(np.uint64(0), np.uint64(x.size), np.uint64(LANES)):
        store(y, i, tanh(load(x, i)))


@compiled()
def sigmoid_of_lanes(x, y):
    for i in range(np.uint64(0), np.uint64(x.size), np.uint64(LANES)):
        store(y, i, sigmoid(load(x, i)))


@compiled()
def exponential_of_lanes(x, y):
    for i in range(np.uint64(0), np.uint64(x.size), np.uint64(LANES)):
        store(y, i, exponential(load(x, i)))


@compiled()
def expm1_of_numbers(x, y):
    for i in range(x.size):
        y[i] = expm1(x[i])


@compiled()
def expm1_of_lanes(x, y):
    for i in range(np.uint64(0), np.uint64(x.size), np.uint64(LANES)):
        store(y, i, expm1(load(x, i)))


@compiled()
def scaled_lanes(p, n, y):
    for i in range(np.uint64(0), np.uint64(p.size), np.uint64(LANES)):
        store(y, i, scaled(load(p, i), load(n, i)))


@compiled()
def lanes_scaled_twice(p, n, y):
    for i in range(np.uint64(0), np.uint64(p.size), np.uint64(LANES)):
        store(y, i, scaled_twice(load(p, i), load(n, i)))


CASES = [
    (tanh_of_numbers, np.tanh), (tanh_of_lanes, np.tanh),
    (sigmoid_of_numbers, scipy.special.expit), (sigmoid_of_lanes, scipy.special.expit),
    (exponential_of_numbers, np.exp), (exponential_of_lanes, np.exp),
    (expm1_of_numbers, np.expm1), (expm1_of_lanes, np.expm1),
]  # fmt: skip

#: Where branches meet, the ends of the range, zeros and what lies below the normal numbers.
SPECIAL = (0.0, -0.0, 0.625, -0.625, 1e-40, -1e-45, 1e-20, 88.0, -87.5, -103.9, -104.1, -1000.0, 3e38, np.inf,
           -np.inf, np.nan)  # fmt: skip


@pytest.mark.parametrize("function, oracle", CASES, ids=lambda f: getattr(f, "__name__", None))
def test_within_4_ulp(function, oracle, dtype):
    x = np.concatenate([np.linspace(-12, 12, 200_000), np.linspace(-110, 110, 20_000), SPECIAL]).astype(dtype)
    x = np.concatenate([x, np.zeros(-x.size % LANES, dtype)])
    y = np.full_like(x, 7)
    function(x, y)
    with np.errstate(over="ignore"):
        expected = oracle(x.astype(np.longdouble))
        infinite = np.isinf(expected.astype(dtype))
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x))
    np.testing.assert_array_equal(y[infinite], np.inf)
    known = ~np.isnan(x) & ~infinite
    ulp = np.spacing(np.abs(expected[known]).astype(dtype)).astype(np.longdouble)
    assert np.max(np.abs(y[known] - expected[known]) / ulp) <= 4
    np.testing.assert_array_equal(np.signbit(y[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("function", (scaled_lanes, lanes_scaled_twice))
def test_scaled_rounds_once(function, rng):
    p = rng.uniform(0.5, 2, 1 << 12).astype(np.float32)
    n = rng.integers(-252, 129, p.size).astype(np.float32)
    y = np.full_like(p, 7)
    function(p, n, y)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y, np.ldexp(p.astype(np.float64), n.astype(int)).astype(np.float32))
