"""Softmax cross entropy of each sample, and the gradient of its mean."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import Kernel, array_in, array_out, one_thread_per, scalar
from bppsa_cupy.raw_kernels.twin import twin


@twin()
def cross_entropy(scores, labels, losses, gradient, batch, classes):
    for sample in range(batch):
        row = scores[sample * classes : (sample + 1) * classes]
        out = gradient[sample * classes : (sample + 1) * classes]
        highest = row[0]
        for k in range(1, classes):
            highest = row[k] if row[k] > highest else highest
        total = row.dtype.type(0)
        for k in range(classes):
            out[k] = np.exp(row[k] - highest)
            total += out[k]
        label = labels[sample]
        losses[sample] = np.log(total) + highest - row[label]
        for k in range(classes):
            out[k] = (out[k] / total - (1 if k == label else 0)) / batch


KERNEL = Kernel(
    name="cross_entropy",
    parameters=(
        array_in("scores", "real", "batch * classes"),
        array_in("labels", "int64", "batch"),
        array_out("losses", "real", "batch"),
        array_out("gradient", "real", "batch * classes"),
        scalar("batch"),
        scalar("classes"),
    ),
    launch=lambda s: one_thread_per(s["batch"], block=64),
    twin=cross_entropy,
)
