"""The transposed Jacobian of tanh."""

from bppsa_cupy.jacobians.diagonal import DiagonalJacobian
from bppsa_cupy.raw_kernels import tanh_fill


class TanhJacobian(DiagonalJacobian):
    """1 - y² of the output y."""

    kernel = tanh_fill.KERNEL
