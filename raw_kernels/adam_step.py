"""One step of Adam over all parameters laid end to end (Kingma and Ba 2015, algorithm 1)."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.spans import spans_of
from bppsa_cupy.system.compiled import compiled


@compiled()
def _span(start, end, steps, gradient, parameter, first, second, rate, beta1, beta2, epsilon, weight_decay):
    real = parameter.dtype.type
    correction1, correction2 = 1 - beta1 ** np.float64(steps), 1 - beta2 ** np.float64(steps)
    decay, take1 = real(weight_decay), real(1 - beta1)
    keep2, take2 = real(beta2), real(1 - beta2)
    pace, scale, tiny = real(rate / correction1), real(np.sqrt(correction2)), real(epsilon)
    for item in range(start, end):
        g = gradient[item] + decay * parameter[item]
        m = first[item] + (g - first[item]) * take1
        v = keep2 * second[item] + take2 * g * g
        first[item] = m
        second[item] = v
        parameter[item] -= pace * m / (np.sqrt(v) / scale + tiny)


_in_spans = spans_of(_span)


@compiled()
def adam_step(
    blocked, steps, gradient, parameter, first, second,
    count, rate, beta1, beta2, epsilon, weight_decay,
):  # fmt: skip
    if blocked[0]:
        return
    arguments = (steps[0], gradient, parameter, first, second, rate, beta1, beta2, epsilon, weight_decay)
    _in_spans(count, count, arguments)


KERNEL = kernel(adam_step, "count")
