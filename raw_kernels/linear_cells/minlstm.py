"""The linear cell minlstm for twins."""

from numba.extending import register_jitable

from bppsa_cupy.raw_kernels.linear.form import LinearForm, LinearFunctions
from bppsa_cupy.raw_kernels.twins.simd.activations import sigmoid
from bppsa_cupy.raw_kernels.twins.simd.lanes import multiply_add, number, select


@register_jitable
def terms(x, p):
    c0 = number(x[0], 85.0)
    t0 = select(x[0] <= -c0, -c0, x[0])
    t1 = select(x[1] <= -c0, -c0, x[1])
    f = sigmoid(t0)
    i = sigmoid(t1)
    new_a = f / (f + i)
    return (new_a,), (multiply_add(-new_a, x[2], x[2]),)


@register_jitable
def by_inputs(g, x, state, p):
    c0 = number(x[0], 85.0)
    one = number(x[0], 1.0)
    zero = number(x[0], 0.0)
    t0 = select(x[0] <= -c0, -c0, x[0])
    t1 = select(x[1] <= -c0, -c0, x[1])
    f = sigmoid(t0)
    i = sigmoid(t1)
    t2 = one / (f + i)
    t3 = t2 * multiply_add(-g[1], x[2], g[0])
    t4 = f * t2
    t5 = -t3 * t4
    return (
        (
            select(-c0 < t0, f * (one - f) * (t3 + t5), zero),
            select(-c0 < t1, t5 * i * (one - i), zero),
            g[1] * (one - t4),
        ),
        (),
    )


FORM = LinearForm("minlstm", 3, 0, LinearFunctions(terms, by_inputs))
