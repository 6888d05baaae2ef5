"""The cell ugrnn for twins."""

from numba.extending import register_jitable

from bppsa_cupy.raw_kernels.frames.form import CellForm, Functions
from bppsa_cupy.raw_kernels.twins.simd.activations import sigmoid, tanh
from bppsa_cupy.raw_kernels.twins.simd.lanes import multiply_add, number


@register_jitable
def forward(x, u, before, p):
    g_ = sigmoid(u[0] + x[0])
    c = tanh(u[1] + x[1])
    return (multiply_add(g_, before[0] - c, c),), (g_, c)


@register_jitable
def backward(g, kept, after, before, p):
    one = number(g[0], 1.0)
    g_, c = kept
    t0 = g[0] * (one - g_)
    return (t0 * g_ * (before[0] - c), t0 * multiply_add(-c, c, one)), (), (g[0] * g_,), ()


@register_jitable
def coefficients(kept, after, before, p):
    one = number(kept[0], 1.0)
    g_, c = kept
    t0 = one - g_
    return (t0 * g_ * (before[0] - c), t0 * multiply_add(-c, c, one), g_)


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
    name="ugrnn", gates=2, states=1, kept=2, parameters=0, separate=(), after=(), before=(0,),
    coefficients=3, dense=((0, 0),), diagonal=((0, 0),), columns=4, tile_columns=8,
    functions=Functions(forward, backward, coefficients, enter, entry, carry),
)  # fmt: skip
