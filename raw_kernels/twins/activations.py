"""tanh and the logistic function for twins, on numbers and on lanes, within 4 ulp; NaN stays NaN.

float32 takes a branch-free exponential (Cephes: a polynomial on ±ln 2 / 2 times a power of two made of
bits); float64 takes the C library's functions.
"""

import math

import numpy as np
from numba import types
from numba.extending import overload, register_jitable

from bppsa_cupy.raw_kernels.twins.lanes import (
    Lanes,
    floor,
    magnitude,
    multiply_add,
    on_each_lane,
    power_of_two,
    select,
)

F = np.float32


@register_jitable
def _exponential(x):
    """p, n with e^x = p 2^n, for -104 <= x <= 0."""
    n = floor(multiply_add(x, F(1.44269504), F(0.5)))
    r = multiply_add(n, F(2.12194440e-4), multiply_add(n, F(-0.693359375), x))
    p = multiply_add(r, F(1.9875691500e-4), F(1.3981999507e-3))
    p = multiply_add(p, r, F(8.3334519073e-3))
    p = multiply_add(p, r, F(4.1665795894e-2))
    p = multiply_add(p, r, F(1.6666665459e-1))
    p = multiply_add(p, r, F(5.0000001201e-1))
    return multiply_add(p, r * r, r) + F(1), n


@register_jitable
def _tanh32(x):
    a = magnitude(x)
    p, n = _exponential(F(-2) * select(a < F(20), a, F(20)))
    e = p * power_of_two(n)
    large = (F(1) - e) / (F(1) + e)
    z = x * x
    q = multiply_add(z, F(-5.70498872745e-3), F(2.06390887954e-2))
    q = multiply_add(q, z, F(-5.37397155531e-2))
    q = multiply_add(q, z, F(1.33314422036e-1))
    q = multiply_add(q, z, F(-3.33332819422e-1))
    small = multiply_add(q * z, x, x)
    # NaN is below nothing, and equals nothing: it falls through to x.
    result = select(a < F(0.625), small, select(x < F(0), F(0) - large, large))
    return select(x == x, result, x)


@register_jitable
def _sigmoid32(x):
    a = magnitude(x)
    # The power of two in two factors, so that results below the normal range keep their bits.
    p, n = _exponential(F(0) - select(a < F(104), a, F(104)))
    half = floor(n * F(0.5))
    e = p * power_of_two(half) * power_of_two(n - half)
    result = select(x < F(0), e, e * F(0) + F(1)) / (F(1) + e)
    return select(x == x, result, x)


@register_jitable
def _tanh64(x):
    return math.tanh(x)


@register_jitable
def _sigmoid64(x):
    e = math.exp(-abs(x))
    return (e if x < 0 else 1.0) / (1.0 + e)


def tanh(x):
    """tanh(x) of a number or of lanes, of the same type; outside of twins of NumPy's arrays."""
    return np.tanh(x)


def sigmoid(x):
    """1 / (1 + e^-x) of a number or of lanes, of the same type; outside of twins of NumPy's arrays."""
    e = np.exp(-abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


@overload(tanh)
def _tanh(x):
    if isinstance(x, Lanes):
        return (lambda x: _tanh32(x)) if x.dtype == types.float32 else on_each_lane(_tanh64)
    return (lambda x: _tanh32(x)) if x == types.float32 else (lambda x: _tanh64(x))


@overload(sigmoid)
def _sigmoid(x):
    if isinstance(x, Lanes):
        return (lambda x: _sigmoid32(x)) if x.dtype == types.float32 else on_each_lane(_sigmoid64)
    return (lambda x: _sigmoid32(x)) if x == types.float32 else (lambda x: _sigmoid64(x))
