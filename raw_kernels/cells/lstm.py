"""The cell lstm for twins."""

from numba.extending import register_jitable

from bppsa_cupy.raw_kernels.frames.form import CellForm, Functions
from bppsa_cupy.raw_kernels.twins.simd.activations import sigmoid, tanh
from bppsa_cupy.raw_kernels.twins.simd.lanes import multiply_add, number


@register_jitable
def forward(x, u, before, p):
    i = sigmoid(u[0] + x[0])
    f = sigmoid(u[1] + x[1])
    g_ = tanh(u[2] + x[2])
    o = sigmoid(u[3] + x[3])
    new_c = multiply_add(i, g_, before[1] * f)
    t0 = tanh(new_c)
    return (o * t0, new_c), (i, f, g_, o)


@register_jitable
def backward(g, saved, after, before, p):
    one = number(g[0], 1.0)
    zero = number(g[0], 0.0)
    i, f, g_, o = saved
    t0 = g[0] * o
    t1 = tanh(after[1])
    by_c = multiply_add(t0, multiply_add(-t1, t1, one), g[1])
    t2 = by_c * i
    t3 = by_c * f
    return (
        (
            t2 * g_ * (one - i),
            before[1] * t3 * (one - f),
            t2 * multiply_add(-g_, g_, one),
            t0 * t1 * (one - o),
        ),
        (),
        (zero, t3),
        (),
    )


@register_jitable
def coefficients(saved, after, before, p):
    one = number(saved[0], 1.0)
    i, f, g_, o = saved
    t0 = tanh(after[1])
    return (
        o * multiply_add(-t0, t0, one),
        o * t0 * (one - o),
        i * g_ * (one - i),
        before[1] * f * (one - f),
        i * multiply_add(-g_, g_, one),
        f,
    )


@register_jitable
def enter(a, x):
    return (a[1] * x[0], multiply_add(a[0], x[0], x[1]))


@register_jitable
def entry(a, w):
    return (w[3], multiply_add(a[4], w[2], multiply_add(a[3], w[1], a[2] * w[0])))


@register_jitable
def carry(a, x):
    zero = number(x[0], 0.0)
    return (zero, a[5] * x[1])


FORM = CellForm(
    name="lstm", gates=4, states=2, saved=4, parameters=0, separate=(), after=(1,), before=(1,),
    coefficients=6, dense=((0, 0), (0, 1)), diagonal=((1, 0), (1, 1)), columns=2, tile_columns=4,
    functions=Functions(forward, backward, coefficients, enter, entry, carry),
)  # fmt: skip
