"""Values of ReLU's transposed Jacobian (paper, algorithm 7)."""

from numba import prange

from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per, scalar
from bppsa_cupy.raw_kernels.twin import twin


@twin(parallel=True)
def relu_fill(output, values, features, batch):
    for feature in prange(features):
        for sample in range(batch):
            positive = output[sample * features + feature] > 0
            values[feature * batch + sample] = 1 if positive else 0


KERNEL = Kernel(
    name="relu_fill",
    parameters=(
        array_in("output", "real", "batch * features"),
        array_out("values", "real", "features * batch"),
        scalar("features"),
        scalar("batch"),
    ),
    launch=lambda s: one_thread_per(s["features"] * s["batch"]),
    twin=relu_fill,
)
