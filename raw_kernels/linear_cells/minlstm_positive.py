"""The linear cell minlstm_positive for twins."""

from numba.extending import register_jitable

from bppsa_cupy.raw_kernels.linear.form import LinearForm, LinearFunctions
from bppsa_cupy.raw_kernels.twins.simd.activations import sigmoid
from bppsa_cupy.raw_kernels.twins.simd.lanes import multiply_add, number, select


@register_jitable
def terms(x, p):
    c0 = number(x[0], 85.0)
    half = number(x[0], 0.5)
    zero = number(x[0], 0.0)
    t0 = select(x[0] <= -c0, -c0, x[0])
    t1 = select(x[1] <= -c0, -c0, x[1])
    f = sigmoid(t0)
    i = sigmoid(t1)
    new_a = f / (f + i)
    h = sigmoid(x[2])
    t2 = select(zero <= x[2], half + x[2], h)
    return (new_a,), (multiply_add(-new_a, t2, t2),)


@register_jitable
def by_inputs(g, x, state, p):
    c0 = number(x[0], 85.0)
    one = number(x[0], 1.0)
    half = number(x[0], 0.5)
    zero = number(x[0], 0.0)
    t0 = select(x[0] <= -c0, -c0, x[0])
    t1 = select(x[1] <= -c0, -c0, x[1])
    f = sigmoid(t0)
    i = sigmoid(t1)
    t2 = one / (f + i)
    h = sigmoid(x[2])
    t3 = select(zero <= x[2], half + x[2], h)
    t4 = t2 * multiply_add(-g[1], t3, g[0])
    t5 = f * t2
    t6 = -t4 * t5
    t7 = g[1] * (one - t5)
    t8 = select(zero <= x[2], zero, one)
    return (
        (
            select(-c0 < t0, f * (one - f) * (t4 + t6), zero),
            select(-c0 < t1, t6 * i * (one - i), zero),
            multiply_add(t7 * h * t8, one - h, select(zero <= x[2], t7, zero)),
        ),
        (),
    )


FORM = LinearForm("minlstm_positive", 3, 0, LinearFunctions(terms, by_inputs))
