"""Nanoseconds per step of each walk over time, forward and backward.

Each line is a JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bppsa_cupy.devices import Device, Launch, get_device
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.timescan import WalkSize, serial
from bppsa_cupy.timescan.ways import scratch_backward, scratch_walk
from bppsa_cupy.tools import cli

CELLS = ("rnn_tanh", "gru", "lstm")
BATCHES, HIDDEN, STEPS = (1, 16, 64), (20, 64, 128, 256, 512), 256
#: Timed runs of a walk, after one that loads its kernel and one that warms it up.
RUNS = 5


def tell(**line: Any) -> None:
    """Print one JSON object on a line, now: what was found stays when the process is killed."""
    print(json.dumps(line), flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 where every walk ran, 1 where one raised: its line has the error."""
    parser = cli.Parser(prog="walk_steps", description=__doc__, example="walk_steps.py --device host")
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda", help="Run on this device.")
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=CELLS, help="Time these cells.")
    parser.add_argument("--hidden", type=cli.positive_list, default=HIDDEN, help="Time these hidden sizes.")
    parser.add_argument("--steps", type=cli.positive, default=STEPS, help="Walk over this number of steps.")
    arguments = parser.parse_args(argv)
    failed = False
    device, steps = get_device(arguments.device), arguments.steps
    for line in time_walks(device, arguments.cells, hidden=arguments.hidden, steps=steps):
        failed = failed or "error" in line
        tell(**line)
    return int(failed)


def time_walks(
    device: Device,
    cells: Sequence[str] = CELLS,
    batches: Sequence[int] = BATCHES,
    hidden: Sequence[int] = HIDDEN,
    steps: int = STEPS,
    seconds: float = 22.0,
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
    walk = scratch_walk(device, size)
    _, last, delta, entering = scratch_backward(device, walk)
    return {
        "forward": serial.forward(device, walk),
        "backward": serial.backward(device, walk, None, last, size.steps, delta, entering),
    }


def _time_launch(device: Device, launch: Launch, steps: int) -> dict[str, Any]:
    nanoseconds = []
    for _ in range(RUNS + 2):
        start = device.timestamp()
        launch()
        nanoseconds.append(device.seconds(start, device.timestamp()) * 1e9 / steps)
    timed = nanoseconds[2:]
    way = serial.describe_launch(launch).removeprefix(", ") or "by blocks"
    return {"ns_per_step": round(float(np.median(timed)), 1), "least": round(min(timed), 1), "way": way}


if __name__ == "__main__":
    sys.exit(main())
