"""Values of the logistic function's transposed Jacobian."""

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.diagonal import diagonal_filling
from bppsa_cupy.system.compiled import compiled


@compiled(inline="always")
def _slope(y, one):
    return y * (one - y)


_fill = diagonal_filling(_slope)


@compiled()
def sigmoid_fill(output, values, features, batch):
    _fill(output, values, features, batch, output.dtype.type(1))


KERNEL = kernel(sigmoid_fill, "features * batch")
