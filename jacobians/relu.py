"""The transposed Jacobian of ReLU (paper, algorithms 5 to 7)."""

from bppsa_cupy.jacobians.diagonal import DiagonalJacobian
from bppsa_cupy.raw_kernels import relu_fill


class ReLUJacobian(DiagonalJacobian):
    """1 where the output is not 0, else a stored 0."""

    kernel = relu_fill.KERNEL
