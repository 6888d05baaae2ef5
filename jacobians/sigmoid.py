"""The transposed Jacobian of the logistic function."""

from bppsa_cupy.jacobians.diagonal import DiagonalJacobian
from bppsa_cupy.raw_kernels import sigmoid_fill


class SigmoidJacobian(DiagonalJacobian):
    """y (1 - y) of the output y."""

    kernel = sigmoid_fill.KERNEL
