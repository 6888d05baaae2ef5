"""tanh, the logistic function, e^x and e^x - 1 for twins, on numbers and lanes, within 4 ulp; NaN stays NaN.

float32 takes a branch-free exponential, a polynomial on ±ln 2 / 2 (of degree 6, whose largest relative error
in e^r - 1 is the least) times a power of two; float64 takes the C library's functions.
"""

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload, register_jitable

from bppsa_cupy.raw_kernels.twins.simd.lanes import (
    LANES,
    Lanes,
    has_lanes,
    lanewise,
    magnitude,
    multiply_add,
    on_each_lane,
    select,
)
from bppsa_cupy.raw_kernels.twins.simd.vectors import WIDE, call_named

#: Added to a number below 2^22 and taken off again, it leaves the integral number nearest to it.
ROUNDING = np.float32(3 << 22)


def _emit_power(builder, n):
    integers = ir.VectorType(ir.IntType(32), LANES)
    biased = builder.add(builder.fptosi(n, integers), ir.Constant(integers, [127] * LANES))
    return builder.bitcast(builder.shl(biased, ir.Constant(integers, [23] * LANES)), n.type)


_power = lanewise(_emit_power, 1)
_signed = lanewise(lambda builder, x, y: call_named(builder, "llvm.copysign", x, y), 2)


@intrinsic
def _scaled_at_once(typingctx, p, n):
    """p 2^n by the instruction that AVX-512 has for it."""

    def codegen(context, builder, signature, arguments):
        kind, mask, word = arguments[0].type, ir.IntType(LANES), ir.IntType(32)
        function = ir.FunctionType(kind, [kind, kind, kind, mask, word])
        name = f"llvm.x86.avx512.mask.scalef.ps.{32 * LANES}"
        every, as_set = mask((1 << LANES) - 1), word(4)
        given = [*arguments, ir.Constant(kind, ir.Undefined), every, as_set]
        return builder.call(cgutils.get_or_insert_function(builder.module, function, name), given)

    return p(p, n), codegen


def power_of_two(n):
    """2^n in float32, of an integral float32 from -126 to 127."""
    raise NotImplementedError


def scaled(p, n):
    """p 2^n, rounded once, of float32: p from 1/2 to 2, n integral, -252 to 128."""
    raise NotImplementedError


def with_sign_of(x, y):
    """|x| with the sign of y."""
    raise NotImplementedError


@overload(power_of_two)
def _power_of_two(n):
    if has_lanes(n):
        return lambda n: _power(n)
    return lambda n: np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@register_jitable
def scaled_twice(p, n):
    """`scaled` where no instruction does it."""
    # A product by 2^half is exact, so that the other one rounds alone.
    half = (n * np.float32(0.5) + ROUNDING) - ROUNDING
    return p * power_of_two(half) * power_of_two(n - half)


@overload(scaled)
def _scaled(p, n):
    if WIDE and isinstance(p, Lanes) and p.dtype == types.float32:
        return lambda p, n: _scaled_at_once(p, n)
    return lambda p, n: scaled_twice(p, n)


@overload(with_sign_of)
def _with_sign_of(x, y):
    return (lambda x, y: _signed(x, y)) if has_lanes(x, y) else (lambda x, y: np.copysign(x, y))


F = np.float32


@register_jitable
def _exponential(x):
    """m, n with e^x = (1 + m) 2^n, for |x| < 2^21; m is exact to its last places also near 0."""
    n = multiply_add(x, F(1.44269504), ROUNDING) - ROUNDING
    r = multiply_add(n, F(2.12194440e-4), multiply_add(n, F(-0.693359375), x))
    q = multiply_add(r, F(1.3882516385e-3), F(8.3665471330e-3))
    q = multiply_add(q, r, F(4.1667200713e-2))
    q = multiply_add(q, r, F(1.6666543424e-1))
    q = multiply_add(q, r, F(4.9999998150e-1))
    return multiply_add(q * r, r, r), n


@register_jitable
def _tanh32(x):
    # By e^(-2 |x|) - 1, which loses no place where it is near 0. NaN is above nothing, and goes through.
    a = magnitude(x)
    m, n = _exponential(F(-2) * select(a > F(20), F(20), a))
    power = power_of_two(n)
    less = multiply_add(power, m, power - F(1))
    return with_sign_of(less / (less + F(2)), x)


@register_jitable
def _sigmoid32(x):
    # Results below the normal range keep their bits: `scaled` rounds once.
    a = magnitude(x)
    m, n = _exponential(-select(a > F(104), F(104), a))
    e = scaled(m + F(1), n)
    return select(x < F(0), e, F(1)) / (e + F(1))


@register_jitable
def _exponential32(x):
    # Results below the normal range keep their bits, and those above the range are infinite: `scaled`
    # rounds once.
    bounded = select(x > F(89), F(89), select(x < F(-104), F(-104), x))
    m, n = _exponential(bounded)
    return scaled(m + F(1), n)


@register_jitable
def _expm1_32(x):
    # Half of the result is formed, as 2^128 is no number. Below -20 the result rounds to -1.
    bounded = select(x > F(89), F(89), select(x < F(-20), F(-20), x))
    m, n = _exponential(bounded)
    half = power_of_two(n - F(1))
    return with_sign_of(F(2) * multiply_add(half, m, half - F(0.5)), x)


@register_jitable
def _tanh64(x):
    return math.tanh(x)


@register_jitable
def _exponential64(x):
    return math.exp(x)


@register_jitable
def _expm1_64(x):
    return math.expm1(x)


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


def exponential(x):
    """e^x of a number or of lanes, of the same type; outside of twins of NumPy's arrays."""
    return np.exp(x)


def expm1(x):
    """e^x - 1 of a number or of lanes, of the same type; outside of twins of NumPy's arrays."""
    return np.expm1(x)


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


@overload(exponential)
def _exponential_of(x):
    if isinstance(x, Lanes):
        return (lambda x: _exponential32(x)) if x.dtype == types.float32 else on_each_lane(_exponential64)
    return (lambda x: _exponential32(x)) if x == types.float32 else (lambda x: _exponential64(x))


@overload(expm1)
def _expm1_of(x):
    if isinstance(x, Lanes):
        return (lambda x: _expm1_32(x)) if x.dtype == types.float32 else on_each_lane(_expm1_64)
    return (lambda x: _expm1_32(x)) if x == types.float32 else (lambda x: _expm1_64(x))
