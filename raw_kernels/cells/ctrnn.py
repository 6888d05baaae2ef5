"""The cell ctrnn for twins."""

from numba.extending import register_jitable

from bppsa_cupy.raw_kernels.frames.form import CellForm, Functions
from bppsa_cupy.raw_kernels.twins.simd.activations import tanh
from bppsa_cupy.raw_kernels.twins.simd.lanes import multiply_add, number


@register_jitable
def forward(x, u, before, p):
    h = tanh(u[0] + x[0])
    return (multiply_add(p[0], h - before[0], before[0]),), (h,)


@register_jitable
def backward(g, kept, after, before, p):
    one = number(g[0], 1.0)
    h = kept[0]
    return (g[0] * p[0] * multiply_add(-h, h, one),), (), (g[0] * (one - p[0]),), (g[0] * (h - before[0]),)


@register_jitable
def coefficients(kept, after, before, p):
    one = number(kept[0], 1.0)
    h = kept[0]
    return (p[0] * multiply_add(-h, h, one), one - p[0])


@register_jitable
def enter(a, x):
    return (x[0],)


@register_jitable
def entry(a, w):
    return (a[0] * w[0],)


@register_jitable
def carry(a, x):
    return (a[1] * x[0],)


FORM = CellForm(
    name="ctrnn", gates=1, states=1, kept=1, parameters=1, separate=(), after=(), before=(0,),
    coefficients=2, dense=((0, 0),), diagonal=((0, 0),), columns=4, tile_columns=8,
    functions=Functions(forward, backward, coefficients, enter, entry, carry),
)  # fmt: skip
