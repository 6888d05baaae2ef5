"""The linear cell sru for twins."""

from numba.extending import register_jitable

from bppsa_cupy.raw_kernels.linear.form import LinearForm, LinearFunctions
from bppsa_cupy.raw_kernels.twins.simd.activations import sigmoid
from bppsa_cupy.raw_kernels.twins.simd.lanes import multiply_add, number


@register_jitable
def terms(x, p):
    new_a = sigmoid(x[1])
    return (new_a,), (multiply_add(-new_a, x[0], x[0]),)


@register_jitable
def output(x, state, p):
    r = sigmoid(x[2])
    return (multiply_add(r, state[0] - x[3], x[3]),)


@register_jitable
def by_state(g, x, state, p):
    r = sigmoid(x[2])
    return (g[0] * r,)


@register_jitable
def by_inputs(g, x, state, p):
    one = number(x[0], 1.0)
    r = sigmoid(x[2])
    new_a = sigmoid(x[1])
    t0 = one - new_a
    t1 = g[2] * (one - r)
    return (g[1] * t0, new_a * t0 * multiply_add(-g[1], x[0], g[0]), t1 * r * (state[0] - x[3]), t1), ()


FORM = LinearForm("sru", 4, 0, LinearFunctions(terms, by_inputs, output, by_state))
