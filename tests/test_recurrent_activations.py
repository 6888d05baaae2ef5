"""tanh and the logistic function of the twins: within 4 ulp over a dense sweep, on numbers and on lanes."""

import numpy as np
import pytest
import scipy.special

from bppsa_cupy.raw_kernels.twins.activations import sigmoid, tanh
from bppsa_cupy.raw_kernels.twins.lanes import LANES, load, store
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
def tanh_of_lanes(x, y):
    for i in range(np.uint64(0), np.uint64(x.size), np.uint64(LANES)):
        store(y, i, tanh(load(x, i)))


@compiled()
def sigmoid_of_lanes(x, y):
    for i in range(np.uint64(0), np.uint64(x.size), np.uint64(LANES)):
        store(y, i, sigmoid(load(x, i)))


CASES = [
    (tanh_of_numbers, np.tanh), (tanh_of_lanes, np.tanh),
    (sigmoid_of_numbers, scipy.special.expit), (sigmoid_of_lanes, scipy.special.expit),
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
    expected = oracle(x.astype(np.longdouble))
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x))
    known = ~np.isnan(x)
    ulp = np.spacing(np.abs(expected[known]).astype(dtype)).astype(np.longdouble)
    assert np.max(np.abs(y[known] - expected[known]) / ulp) <= 4
