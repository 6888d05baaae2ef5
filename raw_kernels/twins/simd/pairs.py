"""Complex numbers as pairs of neighbouring lanes, real part first.

`paired` is None where lanes hold real numbers, known when a twin is compiled, and else True.
"""

from llvmlite import ir
from numba import types
from numba.extending import overload

from bppsa_cupy.raw_kernels.twins.simd.lanes import LANES, lanewise, multiply_add


def _shuffled(order):
    """The lanes of these numbers."""
    places = ir.Constant(ir.VectorType(ir.IntType(32), LANES), order)
    return lanewise(lambda builder, x: builder.shuffle_vector(x, x, places), 1)


def _alternating(builder, x):
    """Minus the even lanes."""
    signs = ir.Constant(x.type, [-1.0 if lane % 2 == 0 else 1.0 for lane in range(LANES)])
    return builder.fmul(x, signs)


_real_parts = _shuffled([lane - lane % 2 for lane in range(LANES)])
_imaginary_parts = _shuffled([lane - lane % 2 + 1 for lane in range(LANES)])
_exchanged = _shuffled([lane + 1 - 2 * (lane % 2) for lane in range(LANES)])
_with_signs = lanewise(_alternating, 1)


def times_plus(paired, a, sign, x, y):
    """a x + y; of pairs, of a's conjugate where `sign` is -1."""
    raise NotImplementedError


def times(paired, a, sign, x):
    """a x; of pairs, of a's conjugate where `sign` is -1."""
    raise NotImplementedError


@overload(times_plus)
def _times_plus(paired, a, sign, x, y):
    if isinstance(paired, types.NoneType):
        return lambda paired, a, sign, x, y: multiply_add(a, x, y)

    def of_pairs(paired, a, sign, x, y):
        turned = _with_signs(_exchanged(x)) * sign
        return multiply_add(_real_parts(a), x, multiply_add(_imaginary_parts(a), turned, y))

    return of_pairs


@overload(times)
def _times(paired, a, sign, x):
    if isinstance(paired, types.NoneType):
        return lambda paired, a, sign, x: a * x

    def of_pairs(paired, a, sign, x):
        turned = _with_signs(_exchanged(x)) * sign
        return multiply_add(_real_parts(a), x, _imaginary_parts(a) * turned)

    return of_pairs
