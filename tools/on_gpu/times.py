"""Times of every kernel of a pass over time, launch by launch.

A line a kernel and size: seconds by events (by the clock on the host), the median of launches and its
quartiles. Backward walks go through all steps at once, and by chunks. Sizes that would take over LONGEST
seconds by what fewer steps took are told and left out.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bppsa_cupy.devices import Device, get_device
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import REALS, Kernel, Variant
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.on_gpu.ahead import compile_ahead
from bppsa_cupy.tools.on_gpu.clocks import spin_up, tell_timed
from bppsa_cupy.tools.on_gpu.lines import filled_arguments, summary, tell

HIDDEN, STEPS, BATCH = (20, 64, 128, 256), (1000, 30000), 16
#: Steps of a chunk, for so many steps in all.
CHUNK = {1000: 10, 30000: 71}
#: Launches that are timed at most, and seconds: of all launches of a size, and of one of a size not run.
LAUNCHES, BUDGET, LONGEST = 20, 0.3, 1.0


def sized_parser(
    prog: str, description: str | None, hidden: Sequence[int] = HIDDEN, steps: Sequence[int] = STEPS
) -> argparse.ArgumentParser:
    """The command line of a program that times work of several sizes on one device."""
    result = argparse.ArgumentParser(prog=prog, description=description)
    result.add_argument("--device", choices=("cuda", "host"), default="cuda")
    result.add_argument("--hidden", type=cli.positive_list, default=hidden)
    result.add_argument("--steps", type=cli.positive_list, default=steps)
    result.add_argument("--batch-size", type=cli.positive, default=BATCH)
    return result


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = sized_parser("times", __doc__)
    result.add_argument("--dtype", choices=REALS, default=REALS[0])
    result.add_argument("--like", default=".*", metavar="PATTERN", help="of kernels' names (default all)")
    result.add_argument("--once", action="store_true", help="one launch each, for a profiler")
    result.add_argument(
        "--processes", type=cli.positive, default=min(16, os.cpu_count() or 1), help="that compile"
    )
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 where every kernel ran, 1 where one raised: its line has the error."""
    arguments = parser().parse_args(argv)
    device, failed = get_device(arguments.device), False
    kernels = [kernel for name, kernel in over_time().items() if re.fullmatch(arguments.like, name)]
    if device.name == "cuda":
        started = time.monotonic()
        compiled = compile_ahead(variants_of(device, kernels, arguments), arguments.processes)
        tell(compiled=compiled, seconds=time.monotonic() - started)
        spin_up(device)
    for hidden in arguments.hidden:
        for kernel in kernels:
            for line in lines_of(device, kernel, hidden, arguments):
                failed = failed or "error" in line
                tell_timed(device, **line)
    return int(failed)


def over_time() -> dict[str, Kernel]:
    """The kernels of passes over time: walks, single steps, reductions, and scans of boundaries."""
    return {
        name: kernel
        for name, kernel in KERNELS.items()
        if name.endswith(("_forward", "_backward", "_forward_step", "_backward_step", "_reduce"))
        and any(parameter.name == "hidden" for parameter in kernel.parameters)
    } | {name: KERNELS[name] for name in ("chunk_scan", "newton_scan")}


def variants_of(
    device: Device, kernels: Sequence[Kernel], arguments: argparse.Namespace
) -> Iterator[tuple[str, Variant]]:
    """The kernels' names and variants that are timed: one a width, however many steps there are."""
    types = Variant(arguments.dtype)
    for hidden in arguments.hidden:
        for kernel in kernels:
            scalars = scalars_of(kernel, hidden, arguments.steps[0], arguments.batch_size)
            yield kernel.name, kernel.variant_for(types, device.facts_of_launch(scalars, types.itemsize))


def lines_of(
    device: Device, kernel: Kernel, hidden: int, arguments: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """A line for each number of steps, and each way to cut them into chunks; one of a kernel of one step."""
    names = {parameter.name for parameter in kernel.parameters}
    ways = (None,) if "chunk" not in names else (True,) if kernel.name.endswith("_reduce") else (False, True)
    for way in ways:
        before: tuple[int, float] | None = None
        for steps in (1,) if "time" in names else arguments.steps:
            scalars = scalars_of(kernel, hidden, steps, arguments.batch_size)
            if way is False:
                scalars["chunk"] = steps
            line = {"kernel": kernel.name, "dtype": arguments.dtype, "hidden": hidden, "steps": steps}
            line |= {"batch": arguments.batch_size, "chunk": scalars.get("chunk")}
            if before is not None and before[1] * steps / before[0] > LONGEST:
                yield {**line, "left_out": f"{before[0]} steps took {before[1]:.3g} s"}
                continue
            try:
                seconds = time_launches(device, kernel, Variant(arguments.dtype), scalars, arguments.once)
            except (BppsaError, MemoryError) as error:
                yield {**line, "error": f"{type(error).__name__}: {error}"}
                continue
            yield {**line, **summary(seconds)}
            before = steps, float(np.median(seconds))


def scalars_of(kernel: Kernel, hidden: int, steps: int, batch: int) -> dict[str, Any]:
    """A kernel's scalars: no gradients of steps, no padding, forward in time; others 0."""
    chunk = CHUNK.get(steps, max(1, round(steps**0.5 / 3)))
    known = {
        "steps": steps, "hidden": hidden, "states": 1, "batch": batch, "sets": 1, "walks": batch,
        "chunk": chunk, "chunks": -(-steps // chunk), "first": 1, "damping": 1.0,
    }  # fmt: skip
    return {p.name: known.get(p.name, 0) for p in kernel.parameters if not p.is_array}


def time_launches(
    device: Device, kernel: Kernel, variant: Variant, scalars: Mapping[str, Any], once: bool
) -> list[float]:
    """Seconds of each of some launches after a first one, which compiles; of that one where it is all."""
    scale = 1 / max(1.0, float(scalars.get("hidden", scalars.get("size", 1)))) ** 0.5
    run = device.bind(kernel, *filled_arguments(device, kernel, variant, scalars, scale))
    found: list[float] = []
    for number in range(1 if once else LAUNCHES + 1):
        start = device.timestamp()
        run()
        end = device.timestamp()
        found.append(device.seconds(start, end))
        if number > 2 and sum(found[1:]) > BUDGET:
            break
    return found[1:] or found


if __name__ == "__main__":
    sys.exit(main())
