"""Wide products over sequences by the engine's kernels and by CuPy's matmul (cuBLAS), and how they differ.

A line a product and size: the projection of every step's values by one matrix, and the sum over steps and
samples that is the matrix's gradient.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device, get_device
from bppsa_cupy.timescan import products
from bppsa_cupy.tools.on_gpu.clocks import spin_up, tell_timed
from bppsa_cupy.tools.on_gpu.lines import FILLING, fill, summary
from bppsa_cupy.tools.on_gpu.passes import timed
from bppsa_cupy.tools.on_gpu.times import sized_parser

HIDDEN, STEPS = (20, 128, 512, 1024), (1000,)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    return sized_parser("products", __doc__, HIDDEN, STEPS)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 where both agree to 1e-3 of the largest element, 1 where they do not."""
    arguments = parser().parse_args(argv)
    device, failed = get_device(arguments.device), False
    spin_up(device)
    for hidden in arguments.hidden:
        for steps in arguments.steps:
            for line in lines_of(device, hidden, steps, arguments.batch_size):
                failed = failed or not line["apart"] <= 1e-3
                tell_timed(device, **line)
    return int(failed)


def lines_of(device: Device, hidden: int, steps: int, batch: int) -> list[dict[str, Any]]:
    """The lines of a width, of I = H inputs and H outputs."""
    xp, found = device.xp, []
    values, delta = (_random(device, (steps, hidden, batch)) for _ in range(2))
    weight, bias = _random(device, (hidden, hidden)), device.zeros(hidden, np.float32)
    ours, theirs = (device.empty((steps, hidden, batch), np.float32) for _ in range(2))
    project = products.project(device, values, weight, bias, ours)
    found.append(
        _compared(device, "project", project, lambda: xp.matmul(weight, values, out=theirs), ours, theirs)
    )
    sums = device.empty(products.workspace_size(device, steps, batch, hidden, hidden), np.float32)
    gradient, by_bias = device.empty((hidden, hidden), np.float32), device.empty(hidden, np.float32)
    by_blas = device.empty((hidden, hidden), np.float32)
    weigh = products.weight_gradient(device, delta, 0, values, sums, gradient, by_bias)

    def matmul() -> None:
        flat = [xp.ascontiguousarray(one.swapaxes(0, 1)).reshape(hidden, -1) for one in (delta, values)]
        xp.matmul(flat[0], flat[1].T, out=by_blas)

    found.append(_compared(device, "weight gradient", weigh, matmul, gradient, by_blas))
    sizes = {"hidden": hidden, "steps": steps, "batch": batch}
    return [{**sizes, **line} for line in found]


def _random(device: Device, shape: tuple[int, ...]) -> Array:
    array = device.empty(shape, np.float32)
    numbers = np.random.default_rng(0).standard_normal(FILLING).astype(np.float32)
    fill(array.reshape(-1), device.asarray(numbers))
    return array


def _compared(
    device: Device, what: str, ours: Any, theirs: Any, first: Array, second: Array
) -> dict[str, Any]:
    times = [summary(timed(device, run)) for run in (ours, theirs)]
    first, second = device.to_host(first), device.to_host(second)
    apart = float(np.abs(first - second).max() / np.abs(second).max())
    return {"product": what, "ours": times[0], "matmul": times[1], "apart": apart}


if __name__ == "__main__":
    sys.exit(main())
