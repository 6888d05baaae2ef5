"""Softmax cross entropy of each row of scores, and the gradient of its mean over the rows that count."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.system.compiled import compiled


@compiled()
def cross_entropy(scores, labels, counted, losses, gradient, rows, classes, smoothing):
    share, rest = losses.dtype.type(smoothing / classes), losses.dtype.type(1 - smoothing)
    for index in range(rows):
        row = scores[index * classes : (index + 1) * classes]
        out = gradient[index * classes : (index + 1) * classes]
        label = labels[index]
        if label < 0:
            losses[index] = 0
            out[:] = 0
            continue
        highest = row[0]
        for k in range(1, classes):
            highest = row[k] if row[k] > highest else highest
        total = row.dtype.type(0)
        for k in range(classes):
            out[k] = np.exp(row[k] - highest)
            total += out[k]
        loss = np.log(total) + highest - row[label]
        if smoothing > 0:
            spread = row.dtype.type(0)
            for k in range(classes):
                spread += row[label] - row[k]
            loss += share * spread
        losses[index] = loss
        for k in range(classes):
            out[k] = (out[k] / total - (rest + share if k == label else share)) / counted[0]


KERNEL = kernel(cross_entropy, lambda s: one_thread_per(s["rows"], block=64))
