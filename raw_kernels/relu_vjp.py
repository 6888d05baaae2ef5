"""ReLU: the gradient by the input."""

from numba import prange

from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per, scalar
from bppsa_cupy.raw_kernels.twins.spans import part_count, part_start
from bppsa_cupy.raw_kernels.twins.twin import twin


@twin()
def _part(output, gradient, input_gradient, start, end):
    for i in range(start, end):
        value = gradient[i]
        input_gradient[i] = 0 if output[i] <= 0 else value


@twin(parallel=True)
def relu_vjp(output, gradient, input_gradient, size):
    parts = part_count(size)
    if parts == 1:
        _part(output, gradient, input_gradient, part_start(0, 1, size), part_start(1, 1, size))
    else:
        for part in prange(parts):
            start, end = part_start(part, parts, size), part_start(part + 1, parts, size)
            _part(output, gradient, input_gradient, start, end)


KERNEL = Kernel(
    name="relu_vjp",
    parameters=(
        array_in("output", "real", "size"),
        array_in("gradient", "real", "size"),
        array_out("input_gradient", "real", "size"),
        scalar("size"),
    ),
    launch=lambda s: one_thread_per(s["size"]),
    twin=relu_vjp,
)
