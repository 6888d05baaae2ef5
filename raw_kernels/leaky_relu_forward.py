"""Leaky ReLU (Maas et al. 2013), and its slope at every element."""

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.operators.elementwise import activation_of, like
from bppsa_cupy.system.compiled import compiled


@compiled()
def _leaky_relu(x, negative_slope):
    slope = like(x, 1) if x > 0 else negative_slope
    return slope * x, slope


_apply = activation_of(_leaky_relu)


@compiled()
def leaky_relu_forward(input, output, slope, size, negative_slope):
    _apply(size, input, output, slope, negative_slope)


KERNEL = kernel(leaky_relu_forward, lambda s: one_thread_per(s["size"]))
