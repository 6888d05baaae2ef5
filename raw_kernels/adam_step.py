"""One step of Adam over all parameters laid end to end (Kingma and Ba 2015, algorithm 1)."""

import numpy as np
from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.spans import span_count, span_start
from bppsa_cupy.system.compiled import compiled


@compiled()
def _span(steps, gradient, parameter, first, second, start, end, rate, beta1, beta2, epsilon, weight_decay):
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


@compiled(parallel=True)
def adam_step(
    blocked, steps, gradient, parameter, first, second,
    count, rate, beta1, beta2, epsilon, weight_decay,
):  # fmt: skip
    if blocked[0]:
        return
    spans = span_count(count)
    if spans == 1:
        _span(
            steps[0], gradient, parameter, first, second, span_start(0, 1, count), span_start(1, 1, count),
            rate, beta1, beta2, epsilon, weight_decay,
        )  # fmt: skip
    else:
        for span in prange(spans):
            _span(
                steps[0], gradient, parameter, first, second,
                span_start(span, spans, count), span_start(span + 1, spans, count),
                rate, beta1, beta2, epsilon, weight_decay,
            )  # fmt: skip


KERNEL = kernel(adam_step, lambda s: one_thread_per(s["count"]))
