"""The cell rnn_tanh for twins."""

from numba.extending import register_jitable

from bppsa_cupy.raw_kernels.frames.form import CellForm, Functions
from bppsa_cupy.raw_kernels.twins.simd.activations import tanh
from bppsa_cupy.raw_kernels.twins.simd.lanes import multiply_add, number


@register_jitable
def forward(x, u, before, p):
    return (tanh(u[0] + x[0]),), ()


@register_jitable
def backward(g, saved, after, before, p):
    one = number(g[0], 1.0)
    zero = number(g[0], 0.0)
    return (g[0] * multiply_add(-after[0], after[0], one),), (), (zero,), ()


@register_jitable
def coefficients(saved, after, before, p):
    one = number(after[0], 1.0)
    return (multiply_add(-after[0], after[0], one),)


@register_jitable
def enter(a, x):
    return (a[0] * x[0],)


@register_jitable
def entry(a, w):
    return (w[0],)


@register_jitable
def carry(a, x):
    zero = number(x[0], 0.0)
    return (zero,)


FORM = CellForm(
    name="rnn_tanh", gates=1, states=1, saved=0, parameters=0, separate=(), after=(0,), before=(),
    coefficients=1, dense=((0, 0),), diagonal=(), columns=4, tile_columns=8,
    functions=Functions(forward, backward, coefficients, enter, entry, carry),
)  # fmt: skip
