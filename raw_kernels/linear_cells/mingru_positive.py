"""The linear cell mingru_positive for twins."""

from numba.extending import register_jitable

from bppsa_cupy.raw_kernels.linear.form import LinearForm, LinearFunctions
from bppsa_cupy.raw_kernels.twins.simd.activations import sigmoid
from bppsa_cupy.raw_kernels.twins.simd.lanes import multiply_add, number, select


@register_jitable
def terms(x, p):
    half = number(x[0], 0.5)
    zero = number(x[0], 0.0)
    one = number(x[0], 1.0)
    z = sigmoid(x[1])
    h = sigmoid(x[0])
    t0 = select(zero <= x[0], half + x[0], h)
    return (one - z,), (z * t0,)


@register_jitable
def by_inputs(g, x, state, p):
    zero = number(x[0], 0.0)
    one = number(x[0], 1.0)
    half = number(x[0], 0.5)
    z = sigmoid(x[1])
    t0 = g[1] * z
    h = sigmoid(x[0])
    t1 = select(zero <= x[0], zero, one)
    t2 = select(zero <= x[0], half + x[0], h)
    return (
        (
            multiply_add(t0 * h * t1, one - h, select(zero <= x[0], t0, zero)),
            z * (one - z) * (g[1] * t2 - g[0]),
        ),
        (),
    )


FORM = LinearForm("mingru_positive", 2, 0, LinearFunctions(terms, by_inputs))
