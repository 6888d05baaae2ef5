"""Values of the transposed Jacobian of rows divided by the root of their mean square."""

from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.system.compiled import compiled


@compiled(parallel=True)
def rms_norm_fill(input, weight, inverse, values, rows, width, batch, scaled):
    one = input.dtype.type(1)
    for block in prange(rows * width):
        row, i = block // width, block % width
        for j in range(width):
            scale = weight[j] if scaled else one
            for b in range(batch):
                place = b * rows + row
                r = inverse[place]
                shared = r * r * r / input.dtype.type(width)
                product = input[place * width + i] * input[place * width + j] * shared
                own = r if i == j else input.dtype.type(0)
                values[(block * width + j) * batch + b] = scale * (own - product)


KERNEL = kernel(rms_norm_fill, lambda s: one_thread_per(s["rows"] * s["width"] ** 2 * s["batch"]))
