"""Values of ReLU's transposed Jacobian (paper, algorithm 7)."""

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.operators.diagonal import diagonal_filling
from bppsa_cupy.system.compiled import compiled


@compiled(inline="always")
def _slope(y, _):
    return 0 if y <= 0 else 1


_fill = diagonal_filling(_slope)


@compiled()
def relu_fill(output, values, features, batch):
    _fill(output, values, features, batch, 0)


KERNEL = kernel(relu_fill, lambda s: one_thread_per(s["features"] * s["batch"]))
