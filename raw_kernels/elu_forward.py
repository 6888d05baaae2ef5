"""ELU (Clevert et al. 2016), and its slope at every element."""

import math

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.operators.elementwise import activation_of, like
from bppsa_cupy.system.compiled import compiled


@compiled()
def _elu(x, alpha):
    if x > 0:
        return x, like(x, 1)
    return alpha * math.expm1(x), alpha * math.exp(x)


_apply = activation_of(_elu)


@compiled()
def elu_forward(input, output, slope, size, alpha):
    _apply(size, input, output, slope, alpha)


KERNEL = kernel(elu_forward, lambda s: one_thread_per(s["size"]))
