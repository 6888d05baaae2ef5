"""RNN, GRU and LSTM of many sizes against PyTorch's: forward, and back to every parameter."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from tqdm import tqdm

from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks import sequences
from bppsa_cupy.tools.benchmarks.harness import (
    BenchmarkError,
    Row,
    Side,
    compared_row,
    measure,
    require_equal,
)
from bppsa_cupy.tools.benchmarks.machine import provenance
from bppsa_cupy.tools.benchmarks.rivals import best, thread_count
from bppsa_cupy.tools.benchmarks.sequences import LAYERS, TF32, TOLERANCE, Gradients, some_of
from bppsa_cupy.tools.benchmarks.tables import figure
from bppsa_cupy.tools.benchmarks.workload import OVERALL
from bppsa_cupy.tools.lines import aligned

AGAINST = sequences.AGAINST
FEATURES = 8
#: Hidden sizes, batches and steps of the grid.
HIDDEN, BATCH, STEPS = [20, 64, 128, 256, 512], [1, 4, 16, 64], [100, 1000]
#: Steps of a case with --quick.
QUICK_STEPS = 12
#: The last is of a case whose rows are all there.
QUANTITIES = ("forward", "backward", OVERALL)


@dataclass(frozen=True)
class Case:
    """A point of the grid."""

    cell: str
    hidden: int
    batch: int
    steps: int

    @property
    def name(self) -> str:
        return f"{self.cell} H={self.hidden} B={self.batch} T={self.steps}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--cells, --hidden, --batch, --steps, --case-seconds, --resume."""
    names = {name: name for name in LAYERS}
    parser.add_argument(
        "--cells", type=some_of(names), default=list(names), metavar="NAME,NAME",
        help=f"of {', '.join(names)} (default all)",
    )  # fmt: skip
    for option, values, what in (
        ("hidden", HIDDEN, "hidden sizes H"),
        ("batch", BATCH, "samples B"),
        ("steps", STEPS, "steps T"),
    ):
        parser.add_argument(
            f"--{option}", type=cli.positive_list, metavar="N,N",
            help=f"{what} (default {','.join(map(str, values))}; with --quick one)",
        )  # fmt: skip
    parser.add_argument(
        "--case-seconds", type=cli.positive, default=60, metavar="S",
        help="a case's samples stop at so many seconds, if there are three a side (default 60)",
    )  # fmt: skip
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep the cases that the file of --json holds, and add the others",
    )


def run(arguments: argparse.Namespace) -> Iterator[list[Row]]:
    """Forward, backward and overall, case by case; first the cases that are kept, all together.

    A case that fails is told on stderr, and the others go on. Raises BenchmarkError at the end then.
    """
    kept = _kept_rows(arguments) if arguments.resume else []
    if kept:
        yield kept
    there = {row.case for row in kept}
    cases = [case for case in _cases(arguments) if case.name not in there]
    failed = []
    for case in tqdm(cases, unit="case", disable=not sys.stderr.isatty()):
        try:
            rows = _rows(arguments, case)
        except BenchmarkError as error:
            failed.append(case.name)
            cli.warn(f"left out: {error}")
        else:
            yield rows
    if failed:
        raise BenchmarkError(
            f"{len(failed)} of {len(cases)} cases were left out, {', '.join(failed)}: --resume takes them "
            "again"
        )


def _cases(arguments: argparse.Namespace) -> list[Case]:
    few = slice(1 if arguments.quick else None)
    steps = [QUICK_STEPS] if arguments.quick else STEPS
    sizes = (arguments.hidden or HIDDEN[few], arguments.batch or BATCH[few], arguments.steps or steps)
    return [Case(*one) for one in itertools.product(arguments.cells, *sizes)]


def _rows(arguments: argparse.Namespace, case: Case) -> list[Row]:
    options = {
        "cell": case.cell, "device": arguments.device, "steps": case.steps, "features": FEATURES,
        "batch": case.batch, "hidden": case.hidden,
    }  # fmt: skip
    sides = {"ours": Side(Gradients, options, arguments.threads)}
    if arguments.against == "torch":
        sides |= sequences.rivals(arguments, options)
        sides.pop(TF32, None)

    def check(results: Mapping[str, Any]) -> None:
        for side in results.keys() - {"ours"}:
            require_equal(f"{case.name}, {side}", results["ours"], results[side], TOLERANCE)

    measured = measure(
        sides, arguments.repeats, 0.0 if arguments.quick else 0.02, limit_seconds=arguments.case_seconds,
        check=check,
    )  # fmt: skip
    ours = measured.pop("ours")
    note = f"ours on {thread_count(arguments.threads)}, {len(ours.seconds[OVERALL])} samples"
    return [compared_row(case.name, quantity, ours, best(measured), note=note) for quantity in QUANTITIES]


def _kept_rows(arguments: argparse.Namespace) -> list[Row]:
    """The rows that --json's file holds, none where there is no file. Raises BppsaError where it is of
    another benchmark, or was measured with another machine, other versions or another rival."""
    path = arguments.json
    if path is None:
        raise BppsaError("--resume goes on with a file: give --json FILE with it")
    if not path.exists():
        return []
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        stored = [Row(**{field.name: row.get(field.name) for field in fields(Row)}) for row in report["rows"]]
    except (ValueError, TypeError, KeyError) as error:
        raise BppsaError(
            f"{path} holds no rows of a benchmark ({error}): give another --json FILE"
        ) from error
    rivals = {"none" if row.against is None else "torch" for row in stored} or {arguments.against}
    before = {**report, "against": " and ".join(sorted(rivals))}
    device = get_device(arguments.device)
    now = {"name": arguments.name, "against": arguments.against, **provenance(device, arguments.threads)}
    for name, value in now.items():
        if before.get(name) != value:
            raise BppsaError(
                f"{path} was measured with {name} {before.get(name)}, this run has {value}: leave out "
                "--resume, or give another --json FILE"
            )
    return stored


def table(rows: list[dict[str, Any]]) -> str:
    """A line a case, and by cell the geometric mean and the worst of the ratios of the whole pass."""
    cases: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        cases.setdefault(row["case"], {})[row["quantity"]] = row
    head = ("case", "ours", "theirs", "ratio", "quartiles", "forward", "backward", "against")
    lines = [head, *(_line(name, found) for name, found in cases.items() if OVERALL in found)]
    text = aligned(lines, "<>>>>>><")
    ratios: dict[str, list[tuple[float, str]]] = {}
    for row in rows:
        if row["quantity"] == OVERALL and row["ratio"] is not None:
            cell, _, sizes = row["case"].partition(" ")
            ratios.setdefault(cell, []).append((row["ratio"], sizes))
    if ratios:
        text += [
            "",
            *aligned(
                [("cell", "cases", "geometric mean", "worst", ""), *map(_summary, ratios.items())], "<>>><"
            ),
        ]
    return "\n".join(text)


def _line(name: str, found: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    whole = found[OVERALL]
    quartiles = whole["spread"].get("ratio")
    return (
        name,
        figure(whole["ours"], "s"),
        "-" if whole["theirs"] is None else figure(whole["theirs"], "s"),
        _ratio(whole["ratio"]),
        "-" if quartiles is None else " to ".join(map(_ratio, quartiles)),
        *(_ratio(found[quantity]["ratio"]) for quantity in ("forward", "backward")),
        ": ".join(text for text in (whole["against"], whole["note"]) if text) or "-",
    )


def _summary(of_cell: tuple[str, list[tuple[float, str]]]) -> tuple[str, ...]:
    cell, ratios = of_cell
    mean = float(np.exp(np.mean([np.log(ratio) for ratio, _ in ratios])))
    worst, where = min(ratios)
    return cell, str(len(ratios)), _ratio(mean), _ratio(worst), where


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
