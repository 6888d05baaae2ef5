"""Softplus, and its slope at every element."""

import math

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.operators.elementwise import activation_of, like
from bppsa_cupy.raw_kernels.twins.simd.activations import sigmoid
from bppsa_cupy.system.compiled import compiled


@compiled()
def _softplus(x, beta, threshold):
    z = beta * x
    if z > threshold:
        return x, like(x, 1)
    rest = math.log1p(math.exp(-abs(z)))
    return (rest if z < 0 else z + rest) / beta, sigmoid(z)


_apply = activation_of(_softplus)


@compiled()
def softplus_forward(input, output, slope, size, beta, threshold):
    _apply(size, input, output, slope, beta, threshold)


KERNEL = kernel(softplus_forward, lambda s: one_thread_per(s["size"]))
