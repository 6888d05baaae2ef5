"""Products of a pruned network's up-sweep against SciPy's or cupyx's A @ B, a sample at a time."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from bppsa_cupy.devices import get_device
from bppsa_cupy.plan.schedule import Step
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks.harness import (
    BenchmarkError,
    Measurement,
    Rival,
    Row,
    Side,
    compared_row,
    measure,
    require_equal,
)
from bppsa_cupy.tools.benchmarks.upsweep import (
    CupyxLevel,
    PlannedLevel,
    ScipyLevel,
    UpSweep,
    make_network,
    sampled,
)
from bppsa_cupy.tools.benchmarks.workload import OVERALL

AGAINST = ("scipy", "cupyx", "none")
RIVALS: Mapping[str, tuple[str, type[ScipyLevel]]] = {
    "scipy": ("SciPy A @ B", ScipyLevel),
    "cupyx": ("cupyx A @ B", CupyxLevel),
}
LEVELS = 2

#: How close each product's values must be to the rival's, relative to their norm.
TOLERANCE = 1e-5
#: The part of the free memory that a level's values may take: the rest is for the rival's process.
MEMORY_FRACTION = 0.6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--batch-size, --samples, --model, --prune."""
    parser.add_argument(
        "--batch-size", type=cli.positive, help="of our products (default 16, 64 on a GPU; fewer where it "
        "does not fit)",
    )  # fmt: skip
    parser.add_argument(
        "--samples", type=cli.positive, default=2, help="samples that the rival multiplies (default 2)"
    )
    parser.add_argument("--model", default="vgg11", help="a model's name (default vgg11)")
    parser.add_argument(
        "--prune", type=float, default=0.97, help="share of weights that are pruned by layer (default 0.97)"
    )


def run(arguments: argparse.Namespace) -> list[Row]:
    """Every live product of the first two levels and their sums; then the dead ones' multiply-adds."""
    model, fraction = ("lenet5", 0.5) if arguments.quick else (arguments.model, arguments.prune)
    batch = arguments.batch_size or (64 if arguments.device == "cuda" else 16)
    batch = 2 if arguments.quick else batch
    sweep = UpSweep(make_network(model, fraction, "host"), LEVELS)
    rows: list[Row] = []
    for level in range(LEVELS):
        if not any(step.level == level for step in sweep.steps):
            raise BenchmarkError(f"{model} has no live product in level {level} of the up-sweep")
        limit = int(MEMORY_FRACTION * get_device(arguments.device).free_memory())
        options = {"model": model, "fraction": fraction, "device": arguments.device, "level": level}
        options["batch"] = sweep.fitting_batch(level, batch, limit)
        rows += _level_rows(arguments, sweep, options)
    return rows + [_dead_row(sweep, step) for step in sweep.dead]


def _level_rows(arguments: argparse.Namespace, sweep: UpSweep, options: dict[str, Any]) -> list[Row]:
    level, batch = options["level"], options["batch"]
    options = {**options, "samples": sampled(batch, arguments.samples)}
    sides = {"ours": Side(PlannedLevel, options, arguments.threads)}
    if arguments.against != "none":
        name, factory = RIVALS[arguments.against]
        sides[name] = Side(factory, options, arguments.threads)
        without_zeros = {**options, "eliminate_zeros": True}
        sides[f"{name}, zeros left out"] = Side(factory, without_zeros, arguments.threads)
    measured = measure(sides, arguments.repeats, 0.0 if arguments.quick else 0.02)
    ours = measured.pop("ours")
    for name, rival in measured.items():
        require_equal(f"level {level}, {name}", ours.result["values"], rival.result["values"], TOLERANCE)
    full = next(iter(measured.items()), None)
    rows = []
    for step in sweep.level(level):
        rows.append(_row(sweep.label(step), str(step.out), ours, full, sweep.note(step, batch)))
        rows += _bandwidth(sweep.label(step), ours, str(step.out), sweep.bytes([step], batch))
    note = (
        f"all live products, B={batch}; the rival's operands have the planned pattern, stored zeros included"
    )
    case = f"level {level} sum"
    rows.append(_row(case, OVERALL, ours, full, note))
    rows += _bandwidth(case, ours, OVERALL, sweep.bytes(sweep.level(level), batch))
    for thinned in list(measured.items())[1:]:
        note = f"B={batch}; the rival's operands without the zeros of these samples, which no plan can know"
        rows.append(_row(f"{case}, zeros left out", OVERALL, ours, thinned, note))
    return rows


def _row(case: str, lap: str, ours: Measurement, rival: Rival, note: str) -> Row:
    """Seconds a sample of one product, or of all."""
    scales = 1 / ours.result["batch"], 1 / rival[1].result["batch"] if rival else 1.0
    return compared_row(case, "product", ours, rival, lap=lap, scales=scales, note=note)


def _bandwidth(case: str, ours: Measurement, lap: str, moved: int) -> list[Row]:
    """On a GPU, bytes that have to be moved by the time, beside the rate of a copy."""
    rate = ours.result["copy_bytes_per_second"]
    if rate is None:
        return []
    achieved = moved / float(np.median(ours.seconds[lap]))
    note = f"of {rate / 1e9:,.0f} GB/s, a copy's; operands, result and integers once"
    return [Row(case, "share of bandwidth", achieved / rate, unit="fraction", note=note)]


def _dead_row(sweep: UpSweep, step: Step) -> Row:
    note = "never made: an exclusive scan does not read the total"
    terms = sweep.products[step.out].multiply_adds
    return Row(f"dead: {sweep.label(step)}", "multiply-adds", terms, unit="a sample", note=note)
