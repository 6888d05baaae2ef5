"""ReLU: the output."""

from numba import prange

from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per, scalar
from bppsa_cupy.raw_kernels.twins.spans import part_count, part_start
from bppsa_cupy.raw_kernels.twins.twin import twin


@twin()
def _part(input, output, start, end):
    for i in range(start, end):
        value = input[i]
        output[i] = 0 if value <= 0 else value


@twin(parallel=True)
def relu_forward(input, output, size):
    parts = part_count(size)
    if parts == 1:
        _part(input, output, part_start(0, 1, size), part_start(1, 1, size))
    else:
        for part in prange(parts):
            _part(input, output, part_start(part, parts, size), part_start(part + 1, parts, size))


KERNEL = Kernel(
    name="relu_forward",
    parameters=(
        array_in("input", "real", "size"),
        array_out("output", "real", "size"),
        scalar("size"),
    ),
    launch=lambda s: one_thread_per(s["size"]),
    twin=relu_forward,
)
