"""tanh, the logistic function and e^x of the twins: within 4 ulp over a sweep, on numbers and on lanes."""

import numpy as np
import pytest
import scipy.special

from bppsa_cupy.raw_kernels.twins.simd import activations
from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, load, store
from bppsa_cupy.system.compiled import compiled


def on_numbers(function):
    @compiled()
    def apply(x, y):
        for i in range(x.size):
            y[i] = function(x[i])

    return apply


def on_lanes(function):
    @compiled()
    def apply(x, y):
        for i in range(np.uint64(0), np.uint64(x.size), np.uint64(LANES)):
            store(y, i, function(load(x, i)))

    return apply


def on_two(function):
    @compiled()
    def apply(p, n, y):
        for i in range(np.uint64(0), np.uint64(p.size), np.uint64(LANES)):
            store(y, i, function(load(p, i), load(n, i)))

    return apply


ORACLES = {"tanh": np.tanh, "sigmoid": scipy.special.expit, "exponential": np.exp, "expm1": np.expm1}
#: Where branches meet, the ends of the range, zeros and what lies below the normal numbers.
SPECIAL = (0.0, -0.0, 0.625, -0.625, 1e-40, -1e-45, 1e-20, 88.0, -87.5, -103.9, -104.1, -1000.0, 3e38, np.inf,
           -np.inf, np.nan)  # fmt: skip


@pytest.mark.parametrize("apply", [on_numbers, on_lanes])
@pytest.mark.parametrize("name", ORACLES)
def test_within_4_ulp(name, apply, dtype):
    x = np.concatenate([np.linspace(-12, 12, 200_000), np.linspace(-110, 110, 20_000), SPECIAL]).astype(dtype)
    x = np.concatenate([x, np.zeros(-x.size % LANES, dtype)])
    y = np.full_like(x, 7)
    apply(getattr(activations, name))(x, y)
    with np.errstate(over="ignore"):
        expected = ORACLES[name](x.astype(np.longdouble))
        infinite = np.isinf(expected.astype(dtype))
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x))
    np.testing.assert_array_equal(y[infinite], np.inf)
    known = ~np.isnan(x) & ~infinite
    ulp = np.spacing(np.abs(expected[known]).astype(dtype)).astype(np.longdouble)
    assert np.max(np.abs(y[known] - expected[known]) / ulp) <= 4
    np.testing.assert_array_equal(np.signbit(y[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("name", ["scaled", "scaled_twice"])
def test_scaled_rounds_once(name, rng):
    p = rng.uniform(0.5, 2, 1 << 12).astype(np.float32)
    n = rng.integers(-252, 129, p.size).astype(np.float32)
    y = np.full_like(p, 7)
    on_two(getattr(activations, name))(p, n, y)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y, np.ldexp(p.astype(np.float64), n.astype(int)).astype(np.float32))
