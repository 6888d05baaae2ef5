"""The cell mgu for twins."""

from numba.extending import register_jitable

from bppsa_cupy.raw_kernels.frames.form import CellForm, Functions
from bppsa_cupy.raw_kernels.twins.simd.activations import sigmoid, tanh
from bppsa_cupy.raw_kernels.twins.simd.lanes import multiply_add, number


@register_jitable
def forward(x, u, before, p):
    f = sigmoid(u[0] + x[0])
    n = tanh(multiply_add(u[1], f, x[1]))
    return (multiply_add(f, n - before[0], before[0]),), (f, n, u[1])


@register_jitable
def backward(g, kept, after, before, p):
    one = number(g[0], 1.0)
    f, n, u_n = kept
    t0 = g[0] * f * multiply_add(-n, n, one)
    t1 = one - f
    return (t1 * f * multiply_add(t0, u_n, g[0] * (n - before[0])), t0), (t0 * f,), (g[0] * t1,), ()


@register_jitable
def coefficients(kept, after, before, p):
    one = number(kept[0], 1.0)
    f, n, u_n = kept
    t0 = f * multiply_add(-n, n, one)
    t1 = one - f
    return (t1 * f * (multiply_add(t0, u_n, n) - before[0]), t0 * f, t1)


@register_jitable
def enter(a, x):
    return (x[0],)


@register_jitable
def entry(a, w):
    return (multiply_add(a[1], w[1], a[0] * w[0]),)


@register_jitable
def carry(a, x):
    return (a[2] * x[0],)


FORM = CellForm(
    name="mgu", gates=2, states=1, kept=3, parameters=0, separate=(1,), after=(), before=(0,),
    coefficients=3, dense=((0, 0),), diagonal=((0, 0),), columns=4, tile_columns=8,
    functions=Functions(forward, backward, coefficients, enter, entry, carry),
)  # fmt: skip
