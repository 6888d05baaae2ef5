"""One step of stochastic gradient descent over all parameters laid end to end."""

from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.spans import span_count, span_start
from bppsa_cupy.system.compiled import compiled


@compiled()
def _span(
    first_step, gradient, parameter, velocity, start, end, rate, momentum, dampening, weight_decay, nesterov
):
    real = parameter.dtype.type
    decay, keep, take, pace = real(weight_decay), real(momentum), real(1 - dampening), real(rate)
    for item in range(start, end):
        step = gradient[item] + decay * parameter[item]
        if momentum != 0:
            kept = step if first_step else keep * velocity[item] + take * step
            velocity[item] = kept
            step = step + keep * kept if nesterov else kept
        parameter[item] -= pace * step


@compiled(parallel=True)
def sgd_step(
    blocked, steps, gradient, parameter, velocity,
    count, rate, momentum, dampening, weight_decay, nesterov,
):  # fmt: skip
    if blocked[0]:
        return
    spans, first_step = span_count(count), steps[0] == 1
    if spans == 1:
        _span(
            first_step, gradient, parameter, velocity, span_start(0, 1, count), span_start(1, 1, count),
            rate, momentum, dampening, weight_decay, nesterov,
        )  # fmt: skip
    else:
        for span in prange(spans):
            _span(
                first_step, gradient, parameter, velocity,
                span_start(span, spans, count), span_start(span + 1, spans, count),
                rate, momentum, dampening, weight_decay, nesterov,
            )  # fmt: skip


KERNEL = kernel(sgd_step, lambda s: one_thread_per(s["count"]))
