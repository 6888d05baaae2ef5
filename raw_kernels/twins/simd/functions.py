"""Elementary functions for twins of cells, on numbers and on lanes, NumPy's on its arrays; NaN stays NaN.

Lanes have SIMD code for the root; the others are the C library's, lane by lane.
"""

import math

import numpy as np
from numba.extending import overload, register_jitable

from bppsa_cupy.raw_kernels.twins.simd.lanes import Lanes, has_lanes, lanewise, on_each_lane
from bppsa_cupy.raw_kernels.twins.simd.vectors import call_named

_rooted = lanewise(lambda builder, x: call_named(builder, "llvm.sqrt", x), 1)


def sqrt(x):
    """The square root of x."""
    return np.sqrt(x)


def bounded_root(x):
    """The square root of x; its derivative, which is bounded, is no business of a twin's."""
    return np.sqrt(x)


def logarithm(x):
    """The natural logarithm of x."""
    return np.log(x)


def sine(x):
    """sin(x)"""
    return np.sin(x)


def cosine(x):
    """cos(x)"""
    return np.cos(x)


@overload(sqrt)
@overload(bounded_root)
def _sqrt(x):
    return (lambda x: _rooted(x)) if has_lanes(x) else (lambda x: math.sqrt(x))


def _by_lanes(function, single):
    scalar = register_jitable(single)

    @overload(function)
    def meaning(x):
        return on_each_lane(scalar) if isinstance(x, Lanes) else single


_by_lanes(logarithm, lambda x: math.log(x))
_by_lanes(sine, lambda x: math.sin(x))
_by_lanes(cosine, lambda x: math.cos(x))
