"""Matrix products over whole sequences: input projections, and gradients by weights and by the input."""

from __future__ import annotations

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.raw_kernels.sequence_project import KERNEL as PROJECT
from bppsa_cupy.raw_kernels.sequence_weight_gradient import KERNEL as WEIGHT_GRADIENT

#: Steps times samples that one partial sum of a weight's gradient has at least: a host's thread is worth more
#: of them than a GPU's block.
LEAST_ON_HOST, LEAST_ON_GPU = 1 << 11, 256

#: Multiply-adds that one has at least on the host, and how many there are at most.
LEAST_WORK, MOST_ON_HOST = 1 << 20, 8


def project(
    device: Device,
    values: Array,
    weight: Array,
    bias: Array | None,
    out: Array,
    transposed: bool = False,
) -> Launch:
    """A call that sets out_t = W values_t + bias at every step; Wᵀ in place of W where `transposed`.

    values  (T, rows, B), of which the first I rows are taken
    weight  (O, I), or (I, O) where `transposed`; bias (O,) or None
    out     (T, O, B)
    """
    steps, outputs, batch = out.shape
    return device.bind(
        PROJECT,
        values,
        weight,
        weight.reshape(-1)[:0] if bias is None else bias,
        out,
        steps,
        values.shape[1],
        weight.shape[0 if transposed else 1],
        outputs,
        batch,
        transposed,
        bias is not None,
    )


def partial_sums(device: Device, steps: int, batch: int, rows: int, columns: int) -> int:
    """How many partial sums the gradient of a weight (rows, columns) is made of.

    On a GPU as many as keep it busy. On the host, where one is also cut by rows, few, of a number that does
    not depend on the threads: each is worth one, and together they are small beside the deltas.
    """
    if device.xp is not np:
        return max(1, min(steps, max(16, device.workers), steps * batch // LEAST_ON_GPU))
    terms = max(LEAST_ON_HOST, 8 * columns, LEAST_WORK // max(1, rows * columns))
    return max(1, min(steps, MOST_ON_HOST, steps * batch // terms))


def partial_sums_size(device: Device, steps: int, batch: int, rows: int, columns: int) -> int:
    """Elements of the partial sums of a weight's gradient, and its bias's; no fewer than of fewer rows."""
    return partial_sums(device, steps, batch, rows, columns) * rows * (columns + 1)


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
    heads: int = 1,
) -> Launch:
    """A call that overwrites `weight` (J, K) and `bias` (J,) with the sums over steps and samples of
    delta times value, and of delta.

    delta      (T, rows, B), of which J rows from `first` on are taken
    values     (T, rows, B), of which the first K rows are taken
    workspace  flat, of at least `partial_sums_size` elements
    initial    None, or the state before step 0, (>= K, B): then step s's value is that of step s - 1
    heads      J are rows of some gates, H each, and the values' first H rows: those of each head, K of them,
               go with its own rows alone
    """
    steps, delta_rows, batch = delta.shape
    rows, columns = weight.shape
    parts = partial_sums(device, steps, batch, rows, columns)
    weights, biases = weight, bias
    if parts > 1:
        weights = workspace[: parts * rows * columns].reshape(parts, rows, columns)
    if parts > 1 or bias is None:
        biases = workspace[parts * rows * columns :][: parts * rows].reshape(parts, rows)
    launch = device.bind(
        WEIGHT_GRADIENT,
        delta,
        values,
        workspace[:0] if initial is None else initial,
        weights,
        biases,
        steps,
        delta_rows,
        first,
        rows,
        1 if heads == 1 else rows // columns,
        heads,
        values.shape[1],
        columns,
        batch,
        parts,
        initial is not None,
        reverse,
    )
    if parts == 1:
        return launch

    def call() -> None:
        launch()
        device.xp.sum(weights, axis=0, out=weight)
        if bias is not None:
            device.xp.sum(biases, axis=0, out=bias)

    return call
