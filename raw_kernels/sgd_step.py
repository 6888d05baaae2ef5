"""One step of stochastic gradient descent over all parameters laid end to end."""

from numba import prange

from bppsa_cupy.raw_kernels.kernel import (
    Kernel,
    array_in,
    array_inout,
    one_thread_per,
    scalar,
)
from bppsa_cupy.raw_kernels.twins.spans import part_count, part_start
from bppsa_cupy.raw_kernels.twins.twin import twin


@twin()
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


@twin(parallel=True)
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


KERNEL = Kernel(
    name="sgd_step",
    parameters=(
        array_in("blocked", "int32", "1"),
        array_in("steps", "int64", "1"),
        array_in("gradient", "real", "count"),
        array_inout("parameter", "real", "count"),
        array_inout("velocity", "real", "count if momentum else 0"),
        scalar("count"),
        scalar("rate", "double"),
        scalar("momentum", "double"),
        scalar("dampening", "double"),
        scalar("weight_decay", "double"),
        scalar("nesterov", "flag"),
    ),
    launch=lambda s: one_thread_per(s["count"]),
    twin=sgd_step,
)
