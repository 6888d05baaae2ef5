"""One step of stochastic gradient descent over all parameters laid end to end."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.operators.groups import end_of_group
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled


@compiled()
def _of_one_group(start, end, first_step, gradient, parameter, velocity, own, pace, moving):
    real = parameter.dtype.type
    decay, keep, take, rate = real(own[3]), real(own[1]), real(1 - own[2]), real(own[0] * pace)
    moves, nesterov = moving and own[1] != 0, own[4] != 0
    for item in range(start, end):
        step = gradient[item] + decay * parameter[item]
        if moves:
            kept = step if first_step else keep * velocity[item] + take * step
            velocity[item] = kept
            step = step + keep * kept if nesterov else kept
        parameter[item] -= rate * step


@compiled()
def _span(start, end, first_step, gradient, parameter, velocity, group, settings, groups, unit, pace, moving):
    while start < end:
        own = np.uint64(5) * np.uint64(group[start // unit])
        stop = end_of_group(group, groups, unit, start, end)
        _of_one_group(
            start, stop, first_step, gradient, parameter, velocity, settings[own : own + np.uint64(5)],
            pace, moving,
        )  # fmt: skip
        start = stop


_in_spans = spans_of(_span)


@compiled()
def sgd_step(
    blocked, steps, gradient, parameter, velocity, group, settings,
    count, unit, groups, moving,
):  # fmt: skip
    if not blocked[0]:
        arrays, pace = (gradient, parameter, velocity, group, settings), settings[5 * groups]
        _in_spans(count, count, (steps[0] == 1, *arrays, groups, np.uint64(unit), pace, moving != 0))


KERNEL = kernel(sgd_step, lambda s: one_thread_per(s["count"]))
