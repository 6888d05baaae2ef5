"""Values of the logistic function's transposed Jacobian."""

from bppsa_cupy.raw_kernels.twins.slopes import fill_slopes, slope_kernel
from bppsa_cupy.raw_kernels.twins.twin import twin


@twin()
def sigmoid_fill(output, values, features, batch):
    fill_slopes(output, output.dtype.type(0), values, features, batch)


KERNEL = slope_kernel("sigmoid_fill", sigmoid_fill)
