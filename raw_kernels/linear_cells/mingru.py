"""The linear cell mingru for twins."""

from numba.extending import register_jitable

from bppsa_cupy.raw_kernels.linear.form import LinearForm, LinearFunctions
from bppsa_cupy.raw_kernels.twins.simd.activations import sigmoid
from bppsa_cupy.raw_kernels.twins.simd.lanes import number


@register_jitable
def terms(x, p):
    one = number(x[0], 1.0)
    z = sigmoid(x[1])
    return (one - z,), (z * x[0],)


@register_jitable
def by_inputs(g, x, state, p):
    one = number(x[0], 1.0)
    z = sigmoid(x[1])
    return (g[1] * z, z * (one - z) * (g[1] * x[0] - g[0])), ()


FORM = LinearForm("mingru", 2, 0, LinearFunctions(terms, by_inputs))
