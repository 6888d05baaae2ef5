"""One step of Adam over all parameters laid end to end (Kingma and Ba 2015, algorithm 1)."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import (
    Kernel,
    array_in,
    array_inout,
    one_thread_per,
    scalar,
)
from bppsa_cupy.raw_kernels.twin import twin


@twin()
def adam_step(
    blocked, steps, gradient, parameter, first, second,
    count, rate, beta1, beta2, epsilon, weight_decay,
):  # fmt: skip
    if blocked[0]:
        return
    real = parameter.dtype.type
    correction1, correction2 = 1 - beta1 ** np.float64(steps[0]), 1 - beta2 ** np.float64(steps[0])
    decay, take1 = real(weight_decay), real(1 - beta1)
    keep2, take2 = real(beta2), real(1 - beta2)
    pace, scale, tiny = real(rate / correction1), real(np.sqrt(correction2)), real(epsilon)
    for item in range(count):
        g = gradient[item] + decay * parameter[item]
        m = first[item] + (g - first[item]) * take1
        v = keep2 * second[item] + take2 * g * g
        first[item] = m
        second[item] = v
        parameter[item] -= pace * m / (np.sqrt(v) / scale + tiny)


KERNEL = Kernel(
    name="adam_step",
    parameters=(
        array_in("blocked", "int32", "1"),
        array_in("steps", "int64", "1"),
        array_in("gradient", "real", "count"),
        array_inout("parameter", "real", "count"),
        array_inout("first", "real", "count"),
        array_inout("second", "real", "count"),
        scalar("count"),
        scalar("rate", "double"),
        scalar("beta1", "double"),
        scalar("beta2", "double"),
        scalar("epsilon", "double"),
        scalar("weight_decay", "double"),
    ),
    launch=lambda s: one_thread_per(s["count"]),
    twin=adam_step,
)
