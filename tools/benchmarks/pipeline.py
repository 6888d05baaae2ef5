"""Training through a pipeline on several ranks against one process of one of them."""

from __future__ import annotations

import argparse
from typing import Any

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.pipeline import SCHEDULES
from bppsa_cupy.tools import cli, pipelines
from bppsa_cupy.tools.benchmarks.harness import Row, timed_row
from bppsa_cupy.tools.benchmarks.launch import measure

AGAINST = ("one",)
#: Networks, batch sizes and batches a sample that are measured where none is named.
CASES = (("lenet5", 64, 100), ("vgg16", 16, 20), ("resnet20", 32, 40))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--ranks, --model, --ppv, --batch-size, --schedules, --micro-batches, --steps."""
    parser.add_argument("--ranks", type=cli.positive, default=2, metavar="P", help="stages (default 2)")
    parser.add_argument(
        "--model", help="as bppsa-train takes it (default lenet5 B=64, vgg16 B=16, resnet20 B=32)"
    )
    pipelines.add_ppv(parser)
    parser.add_argument("--batch-size", type=cli.positive, metavar="B", help="default 32, with --model")
    parser.add_argument(
        "--schedules", nargs="+", choices=tuple(SCHEDULES), default=["stale"], help="default stale"
    )
    parser.add_argument(
        "--micro-batches", type=cli.positive, default=4, help="where there are any (default 4)"
    )
    parser.add_argument("--steps", type=cli.positive, help="batches a sample (default 20 to 100)")


def run(arguments: argparse.Namespace) -> list[Row]:
    """Steps of training, data read by both sides alike."""
    cases: Any = CASES
    if arguments.batch_size is not None and arguments.model is None:
        raise BppsaError("--batch-size is of one network: give --model with it")
    if arguments.model is not None:
        cases = [(arguments.model, arguments.batch_size or 32, arguments.steps or 20)]
    if arguments.quick:
        cases = [("lenet5", 4, 3)]
    rows = []
    for model, batch_size, steps in cases:
        options = {
            "model": model,
            "batch_size": batch_size,
            "ppv": arguments.ppv,
            "steps": arguments.steps or steps,
            **cli.taken(arguments, "schedules", "micro_batches", "repeats"),
        }
        rows += _rows(arguments, options, measure(arguments.ranks, "pipeline_program", options))
    return rows


def _rows(arguments: argparse.Namespace, options: dict[str, Any], found: dict[str, Any]) -> list[Row]:
    """What a process takes beside others at work; a row a schedule, the bound of its speed-up by the stages'
    own times, and its bubbles."""
    network = f"{options['model']} B={options['batch_size']}"
    note = "every rank trains a whole network of its own at once, for one while the others sleep"
    rows = [
        timed_row(f"{network}, {arguments.ranks} at once", "step", found["beside"], found["alone"],
                  "one process", note=note)
    ]  # fmt: skip
    for name in options["schedules"]:
        samples = found["schedules"][name]
        ppv = ",".join(map(str, samples["ppv"])) or "none"
        stages, micro = samples["stage_seconds"], samples["micro_batches"]
        bound = sum(stages) / max(stages)
        told = ", ".join(f"{1e3 * value:.3g}" for value in stages)
        of = f", {micro} micro-batches" if micro > 1 else ""
        case = f"{network} ppv {ppv}, {arguments.ranks} ranks, {name}{of}"
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
        rows.append(
            Row(case, "idle", max(samples["idle"]), samples["idle_cycles"], "cycles", unit="fraction",
                note="of the most idle rank, from the first action to the last; beside it where every action "
                "takes a cycle")
        )  # fmt: skip
    return rows
