"""Matrix products over whole sequences: input projections, and gradients by weights and by the input."""

from __future__ import annotations

import math

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.raw_kernels.sequence_project import KERNEL as PROJECT
from bppsa_cupy.raw_kernels.sequence_weight_gradient import KERNEL as WEIGHT_GRADIENT

#: Steps times samples that one partial sum of a weight's gradient has at least: a host's thread is worth more
#: of them than a GPU's block.
LEAST_ON_HOST, LEAST_ON_GPU = 1 << 14, 256


def project(device: Device, values: Array, weight: Array, bias: Array | None, out: Array) -> Launch:
    """A call that sets out_t = W values_t + bias at every step.

    values  (T, rows, B), of which the first I rows are taken
    weight  (O, I); bias (O,) or None
    out     (T, O, B)
    """
    return _bind(device, values, weight, bias, out, weight.shape[1], False)


def project_back(device: Device, values: Array, weight: Array, out: Array) -> Launch:
    """A call that sets out_t = Wᵀ values_t at every step.

    values  (T, rows, B), of which the first O rows are taken
    weight  (O, I)
    out     (T, I, B)
    """
    return _bind(device, values, weight, None, out, weight.shape[0], True)


def _bind(
    device: Device,
    values: Array,
    weight: Array,
    bias: Array | None,
    out: Array,
    inputs: int,
    transposed: bool,
) -> Launch:
    steps, outputs, batch = out.shape
    none = weight.reshape(-1)[:0]
    return device.bind(
        PROJECT,
        values,
        weight,
        none if bias is None else bias,
        out,
        steps,
        values.shape[1],
        inputs,
        outputs,
        batch,
        transposed,
        bias is not None,
    )


def partial_sums(device: Device, steps: int, batch: int) -> int:
    """How many partial sums a weight's gradient is made of: as many as keep the device busy."""
    least = LEAST_ON_HOST if device.xp is np else LEAST_ON_GPU
    return max(1, min(steps, max(16, device.workers), steps * batch // least))


def weight_gradient(
    device: Device,
    delta: Array,
    first: int,
    values: Array,
    workspace: Array,
    weight: Array,
    bias: Array | None,
    initial: Array | None = None,
    reverse: bool = False,
) -> Launch:
    """A call that overwrites `weight` (J, K) and `bias` (J,) with the sums over steps and samples of
    delta times value, and of delta.

    delta      (T, rows, B), of which J rows from `first` on are taken
    values     (T, rows, B), of which the first K rows are taken
    workspace  flat, of at least partial_sums * J * (K + 1) elements
    initial    None, or the state before step 0, (>= K, B): then step s's value is that of step s - 1
    """
    steps, delta_rows, batch = delta.shape
    rows, columns = weight.shape
    shape = partial_sums(device, steps, batch), rows, columns + 1
    sums = workspace[: math.prod(shape)].reshape(shape)
    launch = device.bind(
        WEIGHT_GRADIENT,
        delta,
        values,
        workspace[:0] if initial is None else initial,
        sums,
        steps,
        delta_rows,
        first,
        rows,
        values.shape[1],
        columns,
        batch,
        shape[0],
        initial is not None,
        reverse,
    )
    total = device.empty(shape[1:], sums.dtype)

    def call() -> None:
        launch()
        device.xp.sum(sums, axis=0, out=total)
        weight[...] = total[:, :columns]
        if bias is not None:
            bias[...] = total[:, columns]

    return call
