"""Values of dropout's transposed Jacobian."""

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.operators.diagonal import diagonal_filling
from bppsa_cupy.system.compiled import compiled


@compiled(inline="always")
def _slope(kept, scale):
    return scale if kept else type(scale)(0)


_fill = diagonal_filling(_slope)


@compiled()
def dropout_fill(kept, values, features, batch, scale):
    _fill(kept, values, features, batch, scale)


KERNEL = kernel(dropout_fill, lambda s: one_thread_per(s["features"] * s["batch"]))
