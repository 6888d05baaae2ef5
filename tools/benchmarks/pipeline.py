"""Training through a pipeline on several ranks against one process of one of them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks.harness import Row, timed_row
from bppsa_cupy.tools.benchmarks.launch import measure_on_ranks

#: Networks, batch sizes and batches a sample that are measured where none is named.
CASES = (("lenet5", 64, 100), ("vgg16", 16, 20), ("resnet20", 32, 40))


def run(arguments: argparse.Namespace) -> Iterator[list[Row]]:
    """Steps of training, data read by both sides alike."""
    cases: Any = CASES
    if arguments.batch_size is not None and arguments.model is None:
        raise BppsaError("--batch-size requires --model")
    if arguments.model is not None:
        cases = [(arguments.model, arguments.batch_size or 32, arguments.batches or 20)]
    if arguments.quick:
        cases = [("lenet5", 4, 3)]
    for model, batch_size, steps in cases:
        options = {
            "model": model,
            "batch_size": batch_size,
            "ppv": arguments.ppv,
            "steps": arguments.batches or steps,
            **cli.taken(arguments, "pipelines", "micro_batches", "repeats"),
        }
        yield _rows(arguments, options, measure_on_ranks(arguments.rank_count, "pipeline_program", options))


def _rows(arguments: argparse.Namespace, options: dict[str, Any], found: dict[str, Any]) -> list[Row]:
    """What a process takes beside others at work; a row a schedule, the bound of its speed-up by the stages'
    own times."""
    network = f"{options['model']} B={options['batch_size']}"
    note = "every rank trains a whole network of its own at once, for one while the others sleep"
    rows = [
        timed_row(f"{network}, {arguments.rank_count} at once", "step", found["beside"], found["alone"],
                  "one process", note=note)
    ]  # fmt: skip
    for name in options["pipelines"]:
        samples = found["schedules"][name]
        ppv = ",".join(map(str, samples["ppv"])) or "none"
        stages, micro = samples["stage_seconds"], samples["micro_batches"]
        bound = sum(stages) / max(stages)
        told = ", ".join(f"{1e3 * value:.3g}" for value in stages)
        of = f", {micro} micro-batches" if micro > 1 else ""
        case = f"{network} ppv {ppv}, {arguments.rank_count} ranks, {name}{of}"
        rows.append(
            timed_row(
                case,
                "step",
                samples["together"],
                samples["alone"],
                "one process",
                note=f"{options['steps']} batches from an empty pipeline to an empty one; the parameters "
                "equal those of one process to the bit",
            )
        )
        rows.append(
            Row(case, "speed-up", rows[-1].ratio or 0.0, bound, "sum of stages / longest stage", unit="",
                ratio=(rows[-1].ratio or 0.0) / bound, note=f"stages of {told} ms")
        )  # fmt: skip
    return rows
