"""Powers of two for twins, on numbers and on lanes of float32."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload, register_jitable

from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, Lanes, has_lanes, lanewise
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
