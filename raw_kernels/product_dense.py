"""C = A B where all three store every element."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.batched import multiply_add
from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per, scalar
from bppsa_cupy.raw_kernels.twin import twin


@twin(parallel=True)
def product_dense(a, b, c, rows, inner, columns, batch, a_batched, b_batched):
    width, depth, across = np.uint64(batch), np.uint64(inner), np.uint64(columns)
    for row in prange(np.uint64(rows)):
        first = row * across
        for place in range(first * width, (first + across) * width):
            c[place] = 0
        for k in range(depth):
            for column in range(across):
                multiply_add(
                    c, first + column, a, row * depth + k, a_batched,
                    b, k * across + column, b_batched, width,
                )  # fmt: skip


KERNEL = Kernel(
    name="product_dense",
    parameters=(
        array_in("a", "real", "rows * inner * (batch if a_batched else 1)"),
        array_in("b", "real", "inner * columns * (batch if b_batched else 1)"),
        array_out("c", "real", "rows * columns * batch"),
        scalar("rows"),
        scalar("inner"),
        scalar("columns"),
        scalar("batch"),
        scalar("a_batched", "flag"),
        scalar("b_batched", "flag"),
    ),
    launch=lambda s: one_thread_per(s["rows"] * s["columns"] * s["batch"]),
    twin=product_dense,
)
