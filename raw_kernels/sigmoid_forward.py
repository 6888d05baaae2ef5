"""The logistic function, and its slope at every element."""

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.operators.elementwise import activation_of
from bppsa_cupy.raw_kernels.twins.simd.activations import sigmoid
from bppsa_cupy.system.compiled import compiled


@compiled()
def _sigmoid(x):
    s = sigmoid(x)
    return s, s * sigmoid(-x)


_apply = activation_of(_sigmoid)


@compiled()
def sigmoid_forward(input, output, slope, size):
    _apply(size, input, output, slope)


KERNEL = kernel(sigmoid_forward, lambda s: one_thread_per(s["size"]))
