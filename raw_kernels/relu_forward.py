"""ReLU: the output."""

from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.spans import part_count, part_start
from bppsa_cupy.system.compiled import compiled


@compiled()
def _part(input, output, start, end):
    for i in range(start, end):
        value = input[i]
        output[i] = 0 if value <= 0 else value


@compiled(parallel=True)
def relu_forward(input, output, size):
    parts = part_count(size)
    if parts == 1:
        _part(input, output, part_start(0, 1, size), part_start(1, 1, size))
    else:
        for part in prange(parts):
            _part(input, output, part_start(part, parts, size), part_start(part + 1, parts, size))


KERNEL = kernel(relu_forward, "size")
