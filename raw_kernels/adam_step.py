"""One step of Adam or AdamW over all parameters laid end to end (Kingma and Ba 2015, algorithm 1)."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.operators.groups import end_of_group
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled


@compiled()
def _of_one_group(start, end, t, gradient, parameter, first, second, own, pace, decoupled):
    real = parameter.dtype.type
    rate, correction1, correction2 = own[0] * pace, 1 - own[1] ** t, 1 - own[2] ** t
    keep, decay = real(1 - rate * own[4] if decoupled else 1.0), real(0.0 if decoupled else own[4])
    take1, keep2, take2 = real(1 - own[1]), real(own[2]), real(1 - own[2])
    # The running mean starts from its nearer end, as torch.lerp does: else rounding keeps an old, large mean.
    from_gradient = take1 >= real(0.5)
    share = take1 - real(1) if from_gradient else take1
    step, scale, tiny = real(rate / correction1), real(np.sqrt(correction2)), real(own[3])
    for item in range(start, end):
        p = keep * parameter[item]
        g = gradient[item] + decay * p
        m = (g if from_gradient else first[item]) + (g - first[item]) * share
        v = keep2 * second[item] + take2 * g * g
        first[item] = m
        second[item] = v
        parameter[item] = p - step * m / (np.sqrt(v) / scale + tiny)


@compiled()
def _span(start, end, t, gradient, parameter, first, second, group, settings, groups, unit, pace, decoupled):
    while start < end:
        own = np.uint64(5) * np.uint64(group[start // unit])
        stop = end_of_group(group, groups, unit, start, end)
        _of_one_group(
            start, stop, t, gradient, parameter, first, second, settings[own : own + np.uint64(5)],
            pace, decoupled,
        )  # fmt: skip
        start = stop


_in_spans = spans_of(_span)


@compiled()
def adam_step(
    blocked, steps, gradient, parameter, first, second, group, settings,
    count, unit, groups, decoupled,
):  # fmt: skip
    if not blocked[0]:
        arrays, pace = (gradient, parameter, first, second, group, settings), settings[5 * groups]
        _in_spans(
            count, count, (np.float64(steps[0]), *arrays, groups, np.uint64(unit), pace, decoupled != 0)
        )


KERNEL = kernel(adam_step, lambda s: one_thread_per(s["count"]))
