"""One step of stochastic gradient descent over all parameters laid end to end."""

from numba import prange

from bppsa_cupy.raw_kernels.kernel import kernel
from bppsa_cupy.raw_kernels.twins.spans import part_count, part_start
from bppsa_cupy.system.compiled import compiled


@compiled()
def _part(
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
    parts, first_step = part_count(count), steps[0] == 1
    if parts == 1:
        start, end = part_start(0, 1, count), part_start(1, 1, count)
        _part(
            first_step, gradient, parameter, velocity, start, end,
            rate, momentum, dampening, weight_decay, nesterov,
        )  # fmt: skip
    else:
        for part in prange(parts):
            start, end = part_start(part, parts, count), part_start(part + 1, parts, count)
            _part(
                first_step, gradient, parameter, velocity, start, end,
                rate, momentum, dampening, weight_decay, nesterov,
            )  # fmt: skip


KERNEL = kernel(sgd_step, "count")
