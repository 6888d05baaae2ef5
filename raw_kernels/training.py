"""Cross entropy, the check for values that are not finite, and the optimizers' steps."""

import numpy as np

from bppsa_cupy.raw_kernels.kernel import kernel, one_thread_per
from bppsa_cupy.raw_kernels.twins.threads.spans import spans_of
from bppsa_cupy.system.compiled import compiled

# ---- cross_entropy ----


@kernel(lambda s: one_thread_per(s["rows"], block=64))
@compiled()
def cross_entropy(scores, labels, counted, losses, gradient, rows, classes, smoothing):
    share, rest = losses.dtype.type(smoothing / classes), losses.dtype.type(1 - smoothing)
    for index in range(rows):
        row = scores[index * classes : (index + 1) * classes]
        out = gradient[index * classes : (index + 1) * classes]
        label = labels[index]
        if label < 0:
            losses[index] = 0
            out[:] = 0
            continue
        highest = row[0]
        for k in range(1, classes):
            highest = row[k] if row[k] > highest else highest
        total = row.dtype.type(0)
        for k in range(classes):
            out[k] = np.exp(row[k] - highest)
            total += out[k]
        loss = np.log(total) + highest - row[label]
        if smoothing > 0:
            spread = row.dtype.type(0)
            for k in range(classes):
                spread += row[label] - row[k]
            loss += share * spread
        losses[index] = loss
        for k in range(classes):
            out[k] = (out[k] / total - (rest + share if k == label else share)) / counted[0]


# ---- finite_check ----


@kernel(lambda s: one_thread_per(s["count"]))
@compiled()
def finite_check(values, flag, count):
    bad = 0
    for item in range(count):
        bad |= 0 if values[item] - values[item] == 0 else 1
    if bad:
        flag[0] = 1


# ---- step_count ----


@kernel(lambda s: one_thread_per(1, block=32))
@compiled()
def step_count(blocked, steps):
    if not blocked[0]:
        steps[0] += 1


# ---- sgd_step ----


@spans_of
@compiled()
def _sgd_step_span(start, end, first_step, gradient, parameter, velocity, settings, moving):
    real = parameter.dtype.type
    rate, keep = real(settings[0] * settings[5]), real(settings[1])
    share, decay = real(1 - settings[2]), real(settings[3])
    moves, nesterov = moving and settings[1] != 0, settings[4] != 0
    for item in range(start, end):
        step = gradient[item] + decay * parameter[item]
        if moves:
            moved = step if first_step else keep * velocity[item] + share * step
            velocity[item] = moved
            step = step + keep * moved if nesterov else moved
        parameter[item] -= rate * step


@kernel(lambda s: one_thread_per(s["count"]))
@compiled()
def sgd_step(blocked, steps, gradient, parameter, velocity, settings, count, moving):
    if not blocked[0]:
        arguments = steps[0] == 1, gradient, parameter, velocity, settings, moving != 0
        _sgd_step_span(count, count, arguments)


# ---- adam_step ----


@spans_of
@compiled()
def _adam_step_span(start, end, t, gradient, parameter, first, second, settings, decoupled):
    real = parameter.dtype.type
    rate, correction1, correction2 = settings[0] * settings[5], 1 - settings[1] ** t, 1 - settings[2] ** t
    keep, decay = real(1 - rate * settings[4] if decoupled else 1.0), real(0.0 if decoupled else settings[4])
    take1, keep2, take2 = real(1 - settings[1]), real(settings[2]), real(1 - settings[2])
    # The running mean starts from its nearer end, as torch.lerp does: else rounding keeps an old, large mean.
    from_gradient = take1 >= real(0.5)
    share = take1 - real(1) if from_gradient else take1
    step, scale, tiny = real(rate / correction1), real(np.sqrt(correction2)), real(settings[3])
    for item in range(start, end):
        p = keep * parameter[item]
        g = gradient[item] + decay * p
        m = (g if from_gradient else first[item]) + (g - first[item]) * share
        v = keep2 * second[item] + take2 * g * g
        first[item] = m
        second[item] = v
        parameter[item] = p - step * m / (np.sqrt(v) / scale + tiny)


@kernel(lambda s: one_thread_per(s["count"]))
@compiled()
def adam_step(blocked, steps, gradient, parameter, first, second, settings, count, decoupled):
    if not blocked[0]:
        arguments = np.float64(steps[0]), gradient, parameter, first, second, settings, decoupled != 0
        _adam_step_span(count, count, arguments)
