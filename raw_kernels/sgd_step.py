"""One step of stochastic gradient descent over all parameters laid end to end."""

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.spans import spans_of
from bppsa_cupy.system.compiled import compiled


@compiled()
def _span(
    start, end, first_step, gradient, parameter, velocity, rate, momentum, dampening, weight_decay, nesterov
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


_in_spans = spans_of(_span)


@compiled()
def sgd_step(
    blocked, steps, gradient, parameter, velocity,
    count, rate, momentum, dampening, weight_decay, nesterov,
):  # fmt: skip
    if blocked[0]:
        return
    arguments = (
        steps[0] == 1,
        gradient,
        parameter,
        velocity,
        rate,
        momentum,
        dampening,
        weight_decay,
        nesterov,
    )
    _in_spans(count, count, arguments)


KERNEL = kernel(sgd_step, "count")
