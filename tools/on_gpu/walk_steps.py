"""Nanoseconds per step of each walk over time, forward and backward, by cell, batch size and hidden size.

Each line is a JSON object.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch, get_device
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.timescan import Walk, WalkSize, serial
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.on_gpu.lines import tell

CELLS = ("rnn_tanh", "gru", "lstm")
BATCHES, HIDDEN, STEPS = (1, 16, 64), (20, 64, 128, 256, 512), 256
#: Timed runs of a walk, after one that loads its kernel and one that warms it up.
RUNS = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 where every walk ran, 1 where one raised: its line has the error."""
    parser = cli.Parser(prog="walk_steps", description=__doc__, example="walk_steps.py --device host")
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda", help="Run on this device.")
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=CELLS, help="Time these cells.")
    parser.add_argument("--hidden", type=cli.positive_list, default=HIDDEN, help="Time these hidden sizes.")
    parser.add_argument("--steps", type=cli.positive, default=STEPS, help="Walk over this number of steps.")
    arguments = parser.parse_args(argv)
    failed = False
    device, cells = get_device(arguments.device), arguments.cells
    for line in time_walks(device, cells, hidden=arguments.hidden, steps=arguments.steps):
        failed = failed or "error" in line
        tell(**line)
    return int(failed)


def time_walks(
    device: Device,
    cells: Sequence[str] = CELLS,
    batches: Sequence[int] = BATCHES,
    hidden: Sequence[int] = HIDDEN,
    steps: int = STEPS,
    seconds: float = 25.0,
) -> Iterator[dict[str, Any]]:
    """Time the serial walks in the way that a layer takes, on one head and float32.

    Yields
    ------
    dict
        The cell, direction, batch size, hidden size, nanoseconds per step (median and least) and the way. A
        case that begins more than `seconds` after the first has "left_out" instead of the times, one that
        fails has "error".
    """
    started = time.monotonic()
    for units in hidden:
        for batch in batches:
            for name in cells:
                case = {"cell": name, "batch": batch, "hidden": units, "steps": steps}
                if time.monotonic() - started > seconds:
                    yield {**case, "left_out": f"{seconds} s are over"}
                    continue
                size = WalkSize(FORMS[name], steps, batch, units, 4)
                try:
                    for direction, launch in _bind_passes(device, size).items():
                        yield {**case, "direction": direction, **_time_launch(device, launch, steps)}
                except Exception as error:  # the other walks still count
                    yield {**case, "error": f"{type(error).__name__}: {error}"}


def _bind_passes(device: Device, size: WalkSize) -> dict[str, Launch]:
    cell, rng = size.cell, np.random.default_rng(0)

    def weights(rows: int, *columns: int) -> Array:
        drawn = rng.standard_normal((1, rows, *columns)) * size.hidden**-0.5
        return device.asarray(drawn.astype(np.float32))

    def rows_of(count: int, *lead: int) -> Array:
        array = device.empty_walk((*lead, count * size.hidden, size.batch), np.float32)
        array[...] = device.asarray(rng.standard_normal(array.shape[-2:]).astype(np.float32))
        return array

    T = size.steps
    walk = Walk(
        size=size,
        reverse=False,
        weight_hh=weights(cell.sums * size.hidden, size.hidden),
        bias_hh=weights(cell.sums * size.hidden),
        unit=weights(cell.parameters * size.hidden),
        lengths=device.asarray(np.full(size.batch, T, np.int64)),
        initial=rows_of(cell.states),
        projected=rows_of(cell.gates, T),
        state=rows_of(cell.states, T),
        gates=rows_of(cell.saved, T),
        final=rows_of(cell.states),
    )
    outs = rows_of(cell.states), T, rows_of(cell.deltas, T), rows_of(cell.states)
    return {
        "forward": serial.forward(device, walk),
        "backward": serial.backward(device, walk, None, *outs),
    }


def _time_launch(device: Device, launch: Launch, steps: int) -> dict[str, Any]:
    nanoseconds = []
    for _ in range(RUNS + 2):
        start = device.timestamp()
        launch()
        nanoseconds.append(device.seconds(start, device.timestamp()) * 1e9 / steps)
    timed = nanoseconds[2:]
    way = serial.told(launch).removeprefix(", ") or "by blocks"
    return {"ns_per_step": round(float(np.median(timed)), 1), "least": round(min(timed), 1), "way": way}


if __name__ == "__main__":
    sys.exit(main())
