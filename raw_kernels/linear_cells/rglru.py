"""The linear cell rglru for twins."""

from numba.extending import register_jitable

from bppsa_cupy.raw_kernels.linear.form import LinearForm, LinearFunctions
from bppsa_cupy.raw_kernels.twins.simd.activations import expm1, exponential, sigmoid
from bppsa_cupy.raw_kernels.twins.simd.functions import bounded_root, sqrt
from bppsa_cupy.raw_kernels.twins.simd.lanes import multiply_add, number, select


@register_jitable
def terms(x, p):
    two = number(x[0], 2.0)
    r = sigmoid(x[0])
    i = sigmoid(x[1])
    t0 = p[0] * r
    t1 = expm1(t0)
    t2 = bounded_root(-t1 * (t1 + two))
    return (exponential(t0),), (t2 * i * x[2],)


@register_jitable
def by_inputs(g, x, state, p):
    two = number(x[0], 2.0)
    c1 = number(x[0], 4.0)
    c2 = number(x[0], 1e-06)
    one = number(x[0], 1.0)
    r = sigmoid(x[0])
    i = sigmoid(x[1])
    t0 = p[0] * r
    t1 = exponential(t0)
    t2 = g[1] * i
    t3 = expm1(t0)
    t4 = -t3 * (t3 + two)
    t5 = c1 * t4
    t6 = select(t5 <= c2, c2, t5)
    t7 = sqrt(t6)
    t8 = r * multiply_add(g[0], t1, t1 * t2 * x[2] * multiply_add(-two, t3, -two) / t7)
    t9 = bounded_root(t4)
    t10 = t2 * t9
    return (p[0] * t8 * (one - r), t10 * x[2] * (one - i), t10), (t8,)


FORM = LinearForm("rglru", 3, 1, LinearFunctions(terms, by_inputs))
