"""The linear cell qrnn for twins."""

from numba.extending import register_jitable

from bppsa_cupy.raw_kernels.linear.form import LinearForm, LinearFunctions
from bppsa_cupy.raw_kernels.twins.simd.activations import sigmoid, tanh
from bppsa_cupy.raw_kernels.twins.simd.lanes import multiply_add, number


@register_jitable
def terms(x, p):
    z = tanh(x[0])
    new_a = sigmoid(x[1])
    return (new_a,), (multiply_add(-new_a, z, z),)


@register_jitable
def output(x, state, p):
    o = sigmoid(x[2])
    return (state[0] * o,)


@register_jitable
def by_state(g, x, state, p):
    o = sigmoid(x[2])
    return (g[0] * o,)


@register_jitable
def by_inputs(g, x, state, p):
    one = number(x[0], 1.0)
    z = tanh(x[0])
    o = sigmoid(x[2])
    new_a = sigmoid(x[1])
    t0 = one - new_a
    return (
        (
            g[1] * t0 * multiply_add(-z, z, one),
            new_a * t0 * multiply_add(-g[1], z, g[0]),
            g[2] * state[0] * o * (one - o),
        ),
        (),
    )


FORM = LinearForm("qrnn", 3, 0, LinearFunctions(terms, by_inputs, output, by_state))
