"""tanh and the logistic function for twins, within 4 ulp, NaN kept.

float32 takes a branch-free exponential that LLVM turns into SIMD code (Cephes: a polynomial on ±ln 2 / 2
times a power of two made of bits); float64 takes the C library's functions.
"""

import math

import numpy as np
from numba import types
from numba.extending import overload, register_jitable

F = np.float32


@register_jitable
def _exp_scaled(x):
    """p, n with e^x = p 2^n, for -104 <= x <= 0."""
    n = np.floor(x * F(1.44269504) + F(0.5))
    r = x - n * F(0.693359375)
    r = r - n * F(-2.12194440e-4)
    p = F(1.9875691500e-4)
    p = p * r + F(1.3981999507e-3)
    p = p * r + F(8.3334519073e-3)
    p = p * r + F(4.1665795894e-2)
    p = p * r + F(1.6666665459e-1)
    p = p * r + F(5.0000001201e-1)
    return p * r * r + r + F(1), np.int32(n)


@register_jitable
def _power_of_two(n):
    """2^n, for -126 <= n <= 127."""
    return np.int32((n + np.int32(127)) << np.int32(23)).view(np.float32)


@register_jitable
def _tanh32(x):
    a = abs(x)
    p, n = _exp_scaled(F(-2) * min(a, F(20)))
    e = p * _power_of_two(n)
    large = (F(1) - e) / (F(1) + e)
    large = large if x >= F(0) else -large
    z = x * x
    q = F(-5.70498872745e-3)
    q = q * z + F(2.06390887954e-2)
    q = q * z + F(-5.37397155531e-2)
    q = q * z + F(1.33314422036e-1)
    q = q * z + F(-3.33332819422e-1)
    small = q * z * x + x
    result = small if a < F(0.625) else large
    return result if x == x else x


@register_jitable
def _sigmoid32(x):
    # The power of two in two factors, so that results below the normal range keep their bits.
    p, n = _exp_scaled(-min(abs(x), F(104)))
    half = n >> np.int32(1)
    e = p * _power_of_two(half) * _power_of_two(n - half)
    result = (e if x < F(0) else F(1)) / (F(1) + e)
    return result if x == x else x


@register_jitable
def _sigmoid64(x):
    e = math.exp(-abs(x))
    return (e if x < 0 else 1.0) / (1.0 + e)


def tanh(x):
    """tanh(x) of a float32 or float64, of the same type; for use inside twins."""
    raise NotImplementedError


def sigmoid(x):
    """1 / (1 + e^-x) of a float32 or float64, of the same type; for use inside twins."""
    raise NotImplementedError


@overload(tanh)
def _tanh(x):
    return (lambda x: _tanh32(x)) if x == types.float32 else (lambda x: math.tanh(x))


@overload(sigmoid)
def _sigmoid(x):
    return (lambda x: _sigmoid32(x)) if x == types.float32 else (lambda x: _sigmoid64(x))
