"""Steps of recurrent networks, ours and PyTorch's in turn, in one process: the paper's cases, and a grid.

A line a case: seconds forward with the loss, back to every parameter, and overall, of both, and the ratios;
TF32 is off. `bppsa-bench rnn`, `gru` and `recurrent` measure the same with a process a side, whose starts
take longer than all of this.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks.harness import require_equal, timed_row
from bppsa_cupy.tools.benchmarks.sequence_sides import LAYERS, Gradients, TorchGradients
from bppsa_cupy.tools.benchmarks.sequences import CASES, FEATURES, QUANTITIES, TOLERANCE, Case, some_of
from bppsa_cupy.tools.benchmarks.workload import Timer
from bppsa_cupy.tools.on_gpu.clocks import spin_up, tell_timed
from bppsa_cupy.tools.on_gpu.lines import tell

#: The paper's cases by name, and the grid's sizes.
NAMED = ("T1000", "T30000", "T10", "B256", "S", "M", "L")
HIDDEN, BATCH, STEPS = (64, 128, 256, 512, 1024), (1, 16, 64), (1000,)
#: All of the paper's cases.
NAMES = {case.name: case.name for cases in CASES.values() for case in cases}
#: Samples of a side.
REPEATS = 7


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(prog="beside", description=__doc__)
    result.add_argument("--device", choices=("cuda", "host"), default="cuda")
    result.add_argument("--cases", type=some_of(NAMES), default=list(NAMED))
    result.add_argument("--cells", type=some_of({name: name for name in LAYERS}), default=list(LAYERS))
    result.add_argument("--hidden", type=cli.positive_list, default=HIDDEN)
    result.add_argument("--batch", type=cli.positive_list, default=BATCH)
    result.add_argument("--steps", type=cli.positive_list, default=STEPS)
    result.add_argument("--repeats", type=cli.positive, default=REPEATS)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 where both give the same in every case, 1 where they do not or one raised: its line has the
    error."""
    arguments = parser().parse_args(argv)
    device, failed = get_device(arguments.device), False
    spin_up(device)
    for case in cases_of(arguments):
        line: dict[str, Any] = {name: getattr(case, name) for name in ("name", "cell", "steps", "batch")}
        line |= {"hidden": case.hidden, "features": case.features}
        try:
            line |= beside(case, device.name, arguments.repeats)
        except (BppsaError, MemoryError) as error:
            failed, line["error"] = True, f"{type(error).__name__}: {error}"
        tell_timed(device, **line)
    tell(ended=True)
    return int(failed)


def cases_of(arguments: argparse.Namespace) -> Iterator[Case]:
    """The paper's cases that are asked for, then the grid's."""
    yield from (case for cases in CASES.values() for case in cases if case.name in arguments.cases)
    for hidden, cell, batch, steps in product(
        arguments.hidden, arguments.cells, arguments.batch, arguments.steps
    ):
        yield Case("", cell, steps, FEATURES, batch, hidden)


def beside(case: Case, device: str, repeats: int) -> dict[str, Any]:
    """What a case's line has of both sides. Raises BenchmarkError where their gradients differ."""
    sizes = case.cell, device, case.steps, case.features, case.batch, case.hidden
    ours, theirs = Gradients(*sizes), TorchGradients(*sizes)
    timers = [Timer(one, 0.0) for one in (ours, theirs)]
    require_equal(case.title, ours.result(), theirs.result(), TOLERANCE)
    samples = [[timer.sample() for timer in timers] for _ in range(repeats)]
    found: dict[str, Any] = {}
    for quantity in QUANTITIES:
        mine, rival = ([sample[side][quantity] for sample in samples] for side in (0, 1))
        row = timed_row(case.title, quantity, mine, rival)
        found[quantity] = {"ours": row.ours, "pytorch": row.theirs, "ratio": row.ratio}
        found[quantity]["quartiles"] = row.spread["ratio"]
    forward, back = ours.network.last_pass, ours.network.last_backward
    assert forward is not None and back is not None
    return {**found, "ways": [*forward.forward_ways, *back.backward_ways]}


if __name__ == "__main__":
    sys.exit(main())
