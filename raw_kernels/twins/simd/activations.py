"""tanh, the logistic function, e^x and e^x - 1 for twins, on numbers and lanes, within 4 ulp; NaN stays NaN.

All take a branch-free exponential: a polynomial on ±ln 2 / 2 times a power of two. Among those of its degree,
6 in float32 and 11 in float64, the largest relative error in e^r - 1 is the least.
"""

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
    number,
    select,
)
from bppsa_cupy.raw_kernels.twins.simd.vectors import WIDE, call_named

#: Added to a number below 2^22 and taken off again, it leaves the integral number nearest to it.
ROUNDING = np.float32(3 << 22)
#: Likewise for numbers below 2^51. Both sums hold the integer in their lowest bits.
ROUNDING_64 = np.float64(3 << 51)


def _emit_power(builder, n):
    is_single = isinstance(n.type.element, ir.FloatType)
    bits, bias, rounding = (32, 127, ROUNDING) if is_single else (64, 1023, ROUNDING_64)
    integers, place = ir.VectorType(ir.IntType(bits), LANES), 23 if is_single else 52
    sums = builder.fadd(n, ir.Constant(n.type, [float(rounding) + bias] * LANES))
    shifted = builder.shl(builder.bitcast(sums, integers), ir.Constant(integers, [place] * LANES))
    return builder.bitcast(shifted, n.type)


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
        operands = [*arguments, ir.Constant(kind, ir.Undefined), every, as_set]
        return builder.call(cgutils.get_or_insert_function(builder.module, function, name), operands)

    return p(p, n), codegen


def power_of_two(n):
    """2^n in n's dtype, of an integral number from -126 to 127; in float64 from -1022 to 1023."""
    raise NotImplementedError


def scaled(p, n):
    """p 2^n, rounded once: p from 1/2 to 2, n integral, -252 to 128; in float64 -2044 to 1024."""
    raise NotImplementedError


def with_sign_of(x, y):
    """|x| with the sign of y."""
    raise NotImplementedError


@overload(power_of_two)
def _power_of_two(n):
    if has_lanes(n):
        return lambda n: _power(n)
    if n == types.float64:
        return lambda n: np.int64((np.int64(n) + np.int64(1023)) << np.int64(52)).view(np.float64)
    return lambda n: np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


def nearest(x):
    """The integral number nearest to x, which is small."""
    raise NotImplementedError


@overload(nearest)
def _nearest(x):
    if (x.dtype if isinstance(x, Lanes) else x) == types.float32:
        return lambda x: (x + ROUNDING) - ROUNDING
    return lambda x: (x + ROUNDING_64) - ROUNDING_64


@register_jitable
def scaled_twice(p, n):
    """`scaled` where no instruction does it."""
    # A product by 2^half is exact, so that the other one rounds alone.
    half = nearest(n * number(n, 0.5))
    return p * power_of_two(half) * power_of_two(n - half)


@overload(scaled)
def _scaled(p, n):
    if WIDE and isinstance(p, Lanes) and p.dtype == types.float32:
        return lambda p, n: _scaled_at_once(p, n)
    return lambda p, n: scaled_twice(p, n)


@overload(with_sign_of)
def _with_sign_of(x, y):
    return (lambda x, y: _signed(x, y)) if has_lanes(x, y) else (lambda x, y: np.copysign(x, y))


F, D = np.float32, np.float64


@register_jitable
def _exponential32(x):
    """m, n with e^x = (1 + m) 2^n, for |x| < 2^21; m is exact to its last places also near 0."""
    n = multiply_add(x, F(1.44269504), ROUNDING) - ROUNDING
    r = multiply_add(n, F(2.12194440e-4), multiply_add(n, F(-0.693359375), x))
    q = multiply_add(r, F(1.3882516385e-3), F(8.3665471330e-3))
    q = multiply_add(q, r, F(4.1667200713e-2))
    q = multiply_add(q, r, F(1.6666543424e-1))
    q = multiply_add(q, r, F(4.9999998150e-1))
    return multiply_add(q * r, r, r), n


@register_jitable
def _exponential64(x):
    """Likewise, for |x| < 2^40. Even and odd powers are two sums, which do not wait for each other."""
    n = multiply_add(x, D(1.4426950408889634), ROUNDING_64) - ROUNDING_64
    r = multiply_add(n, D(-1.90821492927058770e-10), multiply_add(n, D(-6.93147180369123816e-01), x))
    s = r * r
    even = multiply_add(s, D(2.7626037829004844e-07), D(2.4801505273377038e-05))
    odd = multiply_add(s, D(2.5053713717104434e-08), D(2.7557407743661732e-06))
    even, odd = (
        multiply_add(even, s, D(0.0013888888931565912)),
        multiply_add(odd, s, D(0.00019841269718779285)),
    )
    even, odd = multiply_add(even, s, D(0.04166666666657675)), multiply_add(odd, s, D(0.008333333333389653))
    even, odd = multiply_add(even, s, D(0.5000000000000006)), multiply_add(odd, s, D(0.16666666666666588))
    return multiply_add(multiply_add(odd, r, even), s, r), n


def _functions_of(F, exponential, top, bottom, least, shift):
    """tanh, the logistic function, e^x and e^x - 1 in one dtype.

    e^x is infinite from `top` on, and 0 below -`bottom`. Below -`least`, e^x - 1 rounds to -1. With
    |x| <= `bottom`, e^x 2^-`shift` is a normal number.
    """
    top, bottom, least, shift, small = F(top), F(bottom), F(least), F(shift), F(0.5) ** F(shift)

    @register_jitable
    def tanh(x):
        # By e^(-2 |x|) - 1, which loses no place where it is near 0. NaN is above nothing, and goes through.
        a = magnitude(x)
        m, n = exponential(F(-2) * select(a > F(20), F(20), a))
        power = power_of_two(n)
        less = multiply_add(power, m, power - F(1))
        return with_sign_of(less / (less + F(2)), x)

    @register_jitable
    def sigmoid(x):
        # Both parts of the fraction are divided by 2^shift, so that the sum is in range. Results below the
        # normal range are rounded once.
        bounded = select(x > F(40), F(40), select(x < -bottom, -bottom, x))
        m, n = exponential(-bounded)
        return small / multiply_add(m + F(1), power_of_two(n - shift), small)

    @register_jitable
    def power(x):
        # Results below the normal range keep their bits, and those above the range are infinite: `scaled`
        # rounds once.
        bounded = select(x > top, top, select(x < -bottom, -bottom, x))
        m, n = exponential(bounded)
        return scaled(m + F(1), n)

    @register_jitable
    def less_one(x):
        # Half of the result is formed, as 2^128 is no number.
        bounded = select(x > top, top, select(x < -least, -least, x))
        m, n = exponential(bounded)
        half = power_of_two(n - F(1))
        return with_sign_of(F(2) * multiply_add(half, m, half - F(0.5)), x)

    return tanh, sigmoid, power, less_one


_tanh32, _sigmoid32, _power32, _expm1_32 = _functions_of(F, _exponential32, 89, 104, 20, 64)
_tanh64, _sigmoid64, _power64, _expm1_64 = _functions_of(D, _exponential64, 710, 746, 40, 512)


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


def _by_dtype(function, single, double):
    @overload(function)
    def meaning(x):
        is_single = (x.dtype if isinstance(x, Lanes) else x) == types.float32
        return (lambda x: single(x)) if is_single else (lambda x: double(x))


_by_dtype(tanh, _tanh32, _tanh64)
_by_dtype(sigmoid, _sigmoid32, _sigmoid64)
_by_dtype(exponential, _power32, _power64)
_by_dtype(expm1, _expm1_32, _expm1_64)
