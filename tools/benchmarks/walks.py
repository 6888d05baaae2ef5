"""Times of the kernels over time of RNN, GRU and LSTM, launch by launch: one JSON object per line.

Each line gives a kernel and a size, the median of some launches, its quartiles and the nanoseconds per step.
Backward walks run over the whole sequence, and by chunks at the sequence length of the last lines.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import ARRAY_TYPES, Kernel, Variant
from bppsa_cupy.tools import cli

CELLS, VERBS = ("rnn_tanh", "gru", "lstm"), ("forward", "backward")
HIDDEN, BATCH, STEPS = (128, 20, 64, 256), (1, 16, 64), 1000
#: Batch, sequence length and chunk of the lines by chunks.
LONG = (16, 30000, 71)
#: Launches at most, and seconds of all launches of a line.
LAUNCHES, SECONDS = 20, 0.15
#: Random numbers with which arrays are filled.
FILLING = 1 << 16


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 where every kernel ran, 1 where one raised: its line has the error."""
    parser = argparse.ArgumentParser(prog="walks", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--hidden", type=cli.positive_list, default=HIDDEN)
    parser.add_argument("--batch", type=cli.positive_list, default=BATCH)
    parser.add_argument("--steps", type=cli.positive, default=STEPS)
    parser.add_argument("--long", type=cli.positive, nargs=3, default=LONG, metavar=("B", "T", "CHUNK"))
    arguments = parser.parse_args(argv)
    device, failed = get_device(arguments.device), False
    for name, sizes in launches_of(arguments):
        line: dict[str, Any] = {"kernel": name, **sizes}
        try:
            seconds = time_launches(device, KERNELS[name], sizes)
        except Exception as error:  # the other kernels still count
            failed, line["error"] = True, f"{type(error).__name__}: {error}"
        else:
            line["seconds"] = median = float(np.median(seconds))
            line["quartiles"] = [float(one) for one in np.percentile(seconds, (25, 75))]
            line["nanoseconds_per_step"] = round(1e9 * median / sizes["steps"], 2)
        print(json.dumps(line), flush=True)
    return int(failed)


def launches_of(arguments: argparse.Namespace) -> Iterator[tuple[str, dict[str, int]]]:
    """Kernels and their sizes."""
    for hidden, cell, batch, verb in product(arguments.hidden, CELLS, arguments.batch, VERBS):
        steps = arguments.steps
        yield f"{cell}_{verb}", {"hidden": hidden, "batch": batch, "steps": steps, "chunk": steps}
    batch, steps, chunk = arguments.long
    for hidden, cell, verb in product(sorted(arguments.hidden)[:1], CELLS, ("forward", "reduce", "backward")):
        yield f"{cell}_{verb}", {"hidden": hidden, "batch": batch, "steps": steps, "chunk": chunk}


def time_launches(device: Device, kernel: Kernel, sizes: Mapping[str, int]) -> list[float]:
    """Seconds of some launches, after a first one that loads the kernel."""
    run = device.bind(kernel, *arguments_of(device, kernel, sizes))
    found: list[float] = []
    for number in range(LAUNCHES + 1):
        start = device.timestamp()
        run()
        found.append(device.seconds(start, device.timestamp()))
        if number > 3 and sum(found[1:]) > SECONDS:
            break
    return found[1:]


def arguments_of(device: Device, kernel: Kernel, sizes: Mapping[str, int]) -> list[Any]:
    """Arguments of a launch in float32: random reals, full lengths, indices of 0, one set of weights, no
    gradients of steps."""
    chunks, known = -(-sizes["steps"] // sizes["chunk"]), Variant()
    scalars = {"states": 1, "sets": 1, "walks": sizes["batch"], "chunks": chunks, **sizes}
    scalars = {p.name: scalars.get(p.name, 0) for p in kernel.parameters if not p.is_array}
    generator, arguments = np.random.default_rng(0), []
    numbers = generator.standard_normal(FILLING) / max(1, sizes["hidden"]) ** 0.5
    for parameter in kernel.parameters:
        if not parameter.is_array:
            arguments.append(scalars[parameter.name])
            continue
        dtype = {"real": known.real, "index": known.index}.get(parameter.type, ARRAY_TYPES[parameter.type])
        size = int(eval(parameter.size, {"min": min, "max": max}, dict(scalars)))
        if parameter.name == "lengths":
            value = np.full(size, sizes["steps"])
        else:
            value = np.resize(numbers, size) if parameter.type == "real" else np.zeros(size)
        arguments.append(device.asarray(value.astype(dtype)))
    return arguments


if __name__ == "__main__":
    sys.exit(main())
