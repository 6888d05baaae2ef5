"""GELU (Hendrycks and Gimpel 2016), and its slope at every element."""

import math

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.operators.elementwise import activation_of, like
from bppsa_cupy.raw_kernels.twins.simd.activations import sigmoid
from bppsa_cupy.system.compiled import compiled


@compiled()
def _gelu(x, tanh_form):
    if tanh_form:
        c = max(min(x, like(x, 40)), like(x, -40))
        square = c * c
        twice = like(x, 1.5957691216057308) * c * (like(x, 1) + like(x, 0.044715) * square)
        share = sigmoid(twice)
        rate = like(x, 1.5957691216057308) * (like(x, 1) + like(x, 0.134145) * square)
        density = rate * share * sigmoid(-twice)
    else:
        share = like(x, 0.5) * math.erfc(like(x, -0.70710678118654752) * x)
        density = like(x, 0.39894228040143268) * math.exp(like(x, -0.5) * x * x)
    return x * share, share + x * density


_apply = activation_of(_gelu)


@compiled()
def gelu_forward(input, output, slope, size, tanh_form):
    _apply(size, input, output, slope, tanh_form)


KERNEL = kernel(gelu_forward, lambda s: one_thread_per(s["size"]))
