"""tanh, and its slope at every element."""

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.operators.elementwise import activation_of, like
from bppsa_cupy.raw_kernels.twins.simd.activations import tanh
from bppsa_cupy.system.compiled import compiled


@compiled()
def _tanh(x):
    y, one = tanh(x), like(x, 1)
    return y, (one - y) * (one + y)


_apply = activation_of(_tanh)


@compiled()
def tanh_forward(input, output, slope, size):
    _apply(size, input, output, slope)


KERNEL = kernel(tanh_forward, lambda s: one_thread_per(s["size"]))
