"""ReLU: the gradient by the input."""

from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.spans import part_count, part_start
from bppsa_cupy.system.compiled import compiled


@compiled()
def _part(output, gradient, input_gradient, start, end):
    for i in range(start, end):
        value = gradient[i]
        input_gradient[i] = 0 if output[i] <= 0 else value


@compiled(parallel=True)
def relu_vjp(output, gradient, input_gradient, size):
    parts = part_count(size)
    if parts == 1:
        _part(output, gradient, input_gradient, part_start(0, 1, size), part_start(1, 1, size))
    else:
        for part in prange(parts):
            start, end = part_start(part, parts, size), part_start(part + 1, parts, size)
            _part(output, gradient, input_gradient, start, end)


KERNEL = kernel(relu_vjp, "size")
