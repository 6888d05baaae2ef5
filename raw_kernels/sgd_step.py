"""One step of stochastic gradient descent over all parameters laid end to end."""

from bppsa_cupy.raw_kernels.kernel import (
    Kernel,
    array_in,
    array_inout,
    one_thread_per,
    scalar,
)
from bppsa_cupy.raw_kernels.twin import twin


@twin()
def sgd_step(
    blocked, steps, gradient, parameter, velocity,
    count, rate, momentum, dampening, weight_decay, nesterov,
):  # fmt: skip
    if blocked[0]:
        return
    real = parameter.dtype.type
    decay, keep, take, pace = real(weight_decay), real(momentum), real(1 - dampening), real(rate)
    for item in range(count):
        step = gradient[item] + decay * parameter[item]
        if momentum != 0:
            kept = step if steps[0] == 1 else keep * velocity[item] + take * step
            velocity[item] = kept
            step = step + keep * kept if nesterov else kept
        parameter[item] -= pace * step


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
