"""The cell gru for twins."""

from numba.extending import register_jitable

from bppsa_cupy.raw_kernels.frames.form import CellForm, Functions
from bppsa_cupy.raw_kernels.twins.simd.activations import sigmoid, tanh
from bppsa_cupy.raw_kernels.twins.simd.lanes import multiply_add, number


@register_jitable
def forward(x, u, before, p):
    r = sigmoid(u[0] + x[0])
    z = sigmoid(u[1] + x[1])
    n = tanh(multiply_add(u[2], r, x[2]))
    return (multiply_add(z, before[0] - n, n),), (r, z, n, u[2])


@register_jitable
def backward(g, saved, after, before, p):
    one = number(g[0], 1.0)
    r, z, n, u_n = saved
    t0 = g[0] * (one - z)
    t1 = t0 * multiply_add(-n, n, one)
    t2 = t1 * r
    return (t2 * u_n * (one - r), t0 * z * (before[0] - n), t1), (t2,), (g[0] * z,), ()


@register_jitable
def coefficients(saved, after, before, p):
    one = number(saved[0], 1.0)
    r, z, n, u_n = saved
    t0 = one - z
    t1 = t0 * r * multiply_add(-n, n, one)
    return (t1 * u_n * (one - r), t0 * z * (before[0] - n), t1, z)


@register_jitable
def enter(a, x):
    return (x[0],)


@register_jitable
def entry(a, w):
    return (multiply_add(a[2], w[2], multiply_add(a[1], w[1], a[0] * w[0])),)


@register_jitable
def carry(a, x):
    return (a[3] * x[0],)


FORM = CellForm(
    name="gru", gates=3, states=1, saved=4, parameters=0, separate=(2,), after=(), before=(0,),
    coefficients=4, dense=((0, 0),), diagonal=((0, 0),), columns=4, tile_columns=8,
    functions=Functions(forward, backward, coefficients, enter, entry, carry),
)  # fmt: skip
