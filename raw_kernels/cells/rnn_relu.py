"""The cell rnn_relu for twins."""

from numba.extending import register_jitable

from bppsa_cupy.raw_kernels.frames.form import CellForm, Functions
from bppsa_cupy.raw_kernels.twins.simd.lanes import number, select


@register_jitable
def forward(x, u, before, p):
    zero = number(x[0], 0.0)
    t0 = u[0] + x[0]
    return (select(t0 <= zero, zero, t0),), ()


@register_jitable
def backward(g, saved, after, before, p):
    zero = number(g[0], 0.0)
    return (select(zero < after[0], g[0], zero),), (), (zero,), ()


@register_jitable
def coefficients(saved, after, before, p):
    one = number(after[0], 1.0)
    zero = number(after[0], 0.0)
    return (select(zero < after[0], one, zero),)


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
    name="rnn_relu", gates=1, states=1, saved=0, parameters=0, separate=(), after=(0,), before=(),
    coefficients=1, dense=((0, 0),), diagonal=(), columns=4, tile_columns=8,
    functions=Functions(forward, backward, coefficients, enter, entry, carry),
)  # fmt: skip
