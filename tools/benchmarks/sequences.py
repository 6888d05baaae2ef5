"""Recurrent networks forward, and back to every parameter, against PyTorch's: the cases of bppsa-bench rnn,
gru, recurrent and heads."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from tqdm import tqdm

from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks.harness import (
    BenchmarkError,
    Measurement,
    Rival,
    Row,
    Side,
    compared_row,
    measure,
    memory_row,
    require_equal,
)
from bppsa_cupy.tools.benchmarks.rivals import best, thread_count, torch_side, torch_sides
from bppsa_cupy.tools.benchmarks.sequence_sides import (
    HIDDEN,
    LAYERS,
    STEPS_OF,
    Gradients,
    JaxGradients,
    JaxOutputs,
    Outputs,
    SteppedGradients,
    TorchGradients,
    TorchOutputs,
)
from bppsa_cupy.tools.benchmarks.tables import figure
from bppsa_cupy.tools.benchmarks.workload import OVERALL
from bppsa_cupy.tools.lines import aligned
from bppsa_cupy.tools.machine import provenance
from bppsa_cupy.tools.paper import SETS, TABLE4, TABLE5, TABLE6, Epoch

AGAINST = ("torch", "none")
GRID_AGAINST = ("torch", "jax", "none")
#: What the rivals of --against are called in rows, before their threads.
NAMES = {"torch": "PyTorch", "jax": "jax.lax.scan"}
QUANTITIES = ("forward", "backward", OVERALL)
#: How close the loss and every gradient must be to the rival's, relative to the norm.
TOLERANCE = 1e-4
#: The rivals that compute something else, and are not compared: with another rounding, and without heads.
TF32, DENSE = "PyTorch with cuDNN, TF32", "PyTorch's dense layer"
STEPPED = "stepped by PyTorch"
#: Features of the grid and of layers with heads; steps of a case with --quick.
FEATURES, QUICK_STEPS = 8, 12
#: Hidden sizes, batches and steps of the grid.
GRID = {"hidden": [20, 64, 128, 256, 512], "batch": [1, 4, 16, 64], "steps": [100, 1000]}
#: Units, units of a head, batches and steps of layers with heads.
UNITS, QUICK_UNITS, HEAD, HEADS_BATCH, HEADS_STEPS = 512, 32, 16, [1, 16], 10000
#: Methods of the backward pass by what our sides are called.
OURS = {"ours": "auto"}
T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """What is measured.

    name    as rows have it, before the sizes where it is one of the paper's tables 4 to 6
    paper   the paper's seconds of an epoch
    inference  whether the scores alone are asked for, without a way back
    """

    name: str
    cell: str
    steps: int
    features: int
    batch: int
    hidden: int = HIDDEN
    heads: int = 1
    paper: Epoch | None = None
    inference: bool = False

    @property
    def title(self) -> str:
        """The case of its rows."""
        sizes = f": T={self.steps} B={self.batch} F={self.features}"
        return self.name + ("" if self.paper is None else sizes)

    def paper_ratio(self, quantity: str) -> float | None:
        """Baseline / BPPSA, where the paper gives it."""
        if self.paper is None or quantity == "forward":
            return None
        return self.paper.overall_ratio if quantity == OVERALL else self.paper.backward_ratio


def length_case(length: int) -> str:
    """What the RNN of a length is called, at B = 16."""
    return f"T{length}"


def batch_case(batch: int) -> str:
    """What the RNN of a batch is called, at T = 1000."""
    return f"B{batch}" if batch != 16 else length_case(1000)


def group_case(name: str, batch: int) -> str:
    """What the GRU of a set and a batch is called."""
    return name if batch == 16 else f"{name}{batch}"


#: The paper's, by cell.
CASES = {
    "rnn": [
        *(Case(length_case(T), "rnn", T, 1, 16, paper=epoch) for T, epoch in TABLE4.items()),
        *(Case(batch_case(B), "rnn", 1000, 1, B, paper=epoch) for B, epoch in TABLE5.items() if B != 16),
    ],
    "gru": [
        Case(group_case(name, batch), "gru", *SETS[name], batch, paper=epoch)
        for (name, batch), epoch in TABLE6.items()
    ],
}


def measure_case(
    arguments: argparse.Namespace,
    case: Case,
    rivals: Mapping[str, Side],
    ours: Mapping[str, str] = {"ours": "auto"},
) -> dict[str, Measurement]:
    """The sides of a case, measured in turn.

    arguments  device, threads, repeats and quick, as bppsa-bench has them; case_seconds where it is limited
    ours       as OURS
    Raises BenchmarkError where a rival's loss or gradients differ from those of one of our sides.
    """

    def check(results: Mapping[str, Any]) -> None:
        for side in results.keys() - ours.keys():
            for own in ours if side != TF32 and not side.startswith(DENSE) else ():
                require_equal(f"{case.title}, {side}", results[own], results[side], TOLERANCE)

    options = _options(arguments, case)
    sides = {
        side: Side(Outputs if case.inference else Gradients, {**options, "method": method}, arguments.threads)
        for side, method in ours.items()
    }
    limit = getattr(arguments, "case_seconds", math.inf)
    return measure(
        {**sides, **rivals}, arguments.repeats, 0.0 if arguments.quick else 0.02, limit_seconds=limit,
        check=check,
    )  # fmt: skip


def torch_rivals(arguments: argparse.Namespace, case: Case) -> dict[str, Side]:
    """PyTorch on one thread and on all; on a GPU without and with TF32."""
    options = _options(arguments, case)
    if arguments.device != "cuda":
        factory = TorchOutputs if case.inference else TorchGradients
        return torch_sides("PyTorch", factory, options, arguments.threads)
    return {
        "PyTorch with cuDNN": torch_side(TorchGradients, options, arguments.threads),
        TF32: torch_side(TorchGradients, {**options, "tf32": True}, arguments.threads),
    }


def jax_rivals(arguments: argparse.Namespace, case: Case) -> dict[str, Side]:
    """The cell by jax.lax.scan, on one thread and on all."""
    factory, options = JaxOutputs if case.inference else JaxGradients, _options(arguments, case)
    return {
        f"{NAMES['jax']}, {thread_count(each)}": Side(factory, options, each, ("jax",), {"NPROC": str(each)})
        for each in sorted({1, arguments.threads})
    }


def _options(arguments: argparse.Namespace, case: Case) -> dict[str, Any]:
    sizes = {name: getattr(case, name) for name in ("cell", "steps", "features", "batch", "hidden", "heads")}
    return {**sizes, "device": arguments.device}


def _timed(case: Case, ours: Measurement, rival: Rival, note: str | None = None) -> list[Row]:
    sides = [ours] if rival is None else [ours, rival[1]]
    return [
        compared_row(case.title, quantity, ours, rival, paper=case.paper_ratio(quantity), note=note)
        for quantity in QUANTITIES
        if all(quantity in side.seconds for side in sides)
    ]


def some_of(known: Mapping[str, T]) -> Callable[[str], list[T]]:
    """The argument type of some of what is known, by name: "rnn,lstm"."""

    def chosen(text: str) -> list[T]:
        unknown = [name for name in text.split(",") if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(known)}")
        return [known[name] for name in dict.fromkeys(text.split(","))]

    return chosen


def add_cases(parser: argparse.ArgumentParser, cases: Sequence[Case]) -> None:
    """--cases."""
    names = {case.name: case for case in cases}
    parser.add_argument(
        "--cases", type=some_of(names), metavar="NAME,NAME",
        help=f"of {', '.join(names)} (default all; the first with --quick)",
    )  # fmt: skip
    parser.set_defaults(all_cases=list(cases))


def run_cases(arguments: argparse.Namespace) -> list[Row]:
    """Forward, backward, overall and memory of the paper's cases; with --quick of a few steps and samples."""
    cases = arguments.cases or (arguments.all_cases[:1] if arguments.quick else arguments.all_cases)
    rows = []
    for case in cases:
        if arguments.quick:
            case = replace(case, steps=min(case.steps, QUICK_STEPS), batch=min(case.batch, 2))
        rivals = torch_rivals(arguments, case) if arguments.against == "torch" else {}
        measured = measure_case(arguments, case, rivals)
        ours, tf32 = measured.pop("ours"), measured.pop(TF32, None)
        found = best(measured)
        rows += [*_timed(case, ours, found), memory_row(case.title, arguments.device, ours, found)]
        if tf32 is not None:
            rows += _timed(case, ours, (TF32, tf32))
    return rows


def _add_cells(parser: argparse.ArgumentParser, cells: Sequence[str]) -> None:
    """--cells and --case-seconds."""
    parser.add_argument(
        "--cells", type=some_of({name: name for name in cells}), default=list(cells), metavar="NAME,NAME",
        help=f"of {', '.join(cells)} (default all)",
    )  # fmt: skip
    parser.add_argument(
        "--case-seconds", type=cli.positive, default=60, metavar="S",
        help="a case's samples stop at so many seconds, if there are three a side (default 60)",
    )  # fmt: skip


def add_grid(parser: argparse.ArgumentParser) -> None:
    """--cells, --hidden, --batch, --steps, --case-seconds, --inference, --resume."""
    _add_cells(parser, list(LAYERS))
    for option, what in (("hidden", "hidden sizes H"), ("batch", "samples B"), ("steps", "steps T")):
        default = ",".join(map(str, GRID[option]))
        parser.add_argument(
            f"--{option}", type=cli.positive_list, metavar="N,N",
            help=f"{what} (default {default}; with --quick one)",
        )  # fmt: skip
    parser.add_argument("--inference", action="store_true", help="the scores alone, without a way back")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep the cases that the file of --json holds, and add the others",
    )


def grid(arguments: argparse.Namespace) -> list[Case]:
    """The cases that the options ask for."""
    defaults = {name: values[:1] if arguments.quick else values for name, values in GRID.items()}
    defaults["steps"] = [QUICK_STEPS] if arguments.quick else GRID["steps"]
    sizes = (getattr(arguments, name) or values for name, values in defaults.items())
    inference = arguments.inference
    end = " inference" if inference else ""
    return [
        Case(
            f"{cell} H={hidden} B={batch} T={steps}{end}", cell, steps, FEATURES, batch, hidden,
            inference=inference,
        )
        for cell, hidden, batch, steps in itertools.product(arguments.cells, *sizes)
    ]  # fmt: skip


def run_grid(arguments: argparse.Namespace) -> Iterator[list[Row]]:
    """Forward, backward and overall, case by case, against the quickest side of each rival (of JAX, whose
    function is one, and of inference, overall alone); first the cases that are kept, all together.

    A case that fails is told on stderr, and the others go on. Raises BenchmarkError at the end then.
    """
    kept = _kept_rows(arguments) if arguments.resume else []
    if kept:
        yield kept
    there = {row.case for row in kept}
    cases = [case for case in grid(arguments) if case.name not in there]
    failed = []
    for case in tqdm(cases, unit="case", disable=not sys.stderr.isatty()):
        rivals = torch_rivals(arguments, case) if "torch" in arguments.against else {}
        rivals.pop(TF32, None)
        if "jax" in arguments.against:
            rivals |= jax_rivals(arguments, case)
        try:
            measured = measure_case(arguments, case, rivals)
        except BenchmarkError as error:
            failed.append(case.name)
            cli.warn(f"left out: {error}")
            continue
        ours = measured.pop("ours")
        note = f"ours on {thread_count(arguments.threads)}, {len(ours.seconds[OVERALL])} samples"
        groups: dict[str, dict[str, Measurement]] = {}
        for name, side in measured.items():
            groups.setdefault(_rival_of(name), {})[name] = side
        found = [best(group) for group in groups.values()] or [None]
        yield [row for rival in found for row in _timed(case, ours, rival, note)]
    if failed:
        raise BenchmarkError(
            f"{len(failed)} of {len(cases)} cases were left out, {', '.join(failed)}: --resume takes them "
            "again"
        )


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
    asked = set(arguments.against) - {"none"} or {"none"}
    rivals = {_rival_of(row.against) for row in stored} or asked
    before = {**report, "against": " and ".join(sorted(rivals))}
    device = get_device(arguments.device)
    against = " and ".join(sorted(asked))
    now = {"name": arguments.name, "against": against, **provenance(device, arguments.threads)}
    for name, value in now.items():
        if before.get(name) != value:
            raise BppsaError(
                f"{path} was measured with {name} {before.get(name)}, this run has {value}: leave out "
                "--resume, or give another --json FILE"
            )
    return stored


def _rival_of(against: str | None) -> str:
    """The rival of --against that a row or a side names."""
    if against is None:
        return "none"
    return next(rival for rival, name in NAMES.items() if against.startswith(name))


def grid_table(rows: list[dict[str, Any]]) -> str:
    """A line a case and rival, and by cell and rival the geometric mean and the worst of the ratios of the
    whole pass."""
    cases: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in rows:
        cases.setdefault((row["case"], _rival_of(row["against"])), {})[row["quantity"]] = row
    whole = {key: found for key, found in cases.items() if OVERALL in found}
    several = len({rival for _, rival in whole}) > 1
    head = ("case", "ours", "theirs", "ratio", "quartiles", "forward", "backward", "against")
    text = aligned([head, *(_line(name, found) for (name, _), found in whole.items())], "<>>>>>><")
    ratios: dict[str, list[tuple[float, str]]] = {}
    for (name, rival), found in whole.items():
        if found[OVERALL]["ratio"] is not None:
            cell, _, sizes = name.partition(" ")
            of = f"{cell} against {rival}" if several else cell
            ratios.setdefault(of, []).append((found[OVERALL]["ratio"], sizes))
    if ratios:
        lines = [("cell", "cases", "geometric mean", "worst", "")]
        for cell, found_ratios in ratios.items():
            mean = float(np.exp(np.mean([np.log(ratio) for ratio, _ in found_ratios])))
            worst, where = min(found_ratios)
            lines.append((cell, str(len(found_ratios)), _ratio(mean), _ratio(worst), where))
        text += ["", *aligned(lines, "<>>><")]
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
        *(_ratio(found[part]["ratio"]) if part in found else "-" for part in ("forward", "backward")),
        ": ".join(text for text in (whole["against"], whole["note"]) if text) or "-",
    )


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def add_heads(parser: argparse.ArgumentParser) -> None:
    """--cells, --hidden, --head-size, --batch, --steps, --case-seconds."""
    _add_cells(parser, list(STEPS_OF))
    parser.add_argument("--hidden", type=cli.positive, metavar="H", help=f"units (default {UNITS})")
    parser.add_argument(
        "--head-size", type=cli.positive, default=HEAD, metavar="N", help=f"units of a head (default {HEAD})"
    )
    parser.add_argument(
        "--batch", type=cli.positive_list, metavar="N,N",
        help=f"samples B (default {','.join(map(str, HEADS_BATCH))}; with --quick one)",
    )  # fmt: skip
    parser.add_argument("--steps", type=cli.positive, metavar="T", help=f"steps (default {HEADS_STEPS})")


def run_heads(arguments: argparse.Namespace) -> list[Row]:
    """Forward, backward and overall of layers with heads. PyTorch has none: the rivals are its dense layer,
    which is another function, and a loop over the steps, which gives the same gradients."""
    hidden = arguments.hidden or (QUICK_UNITS if arguments.quick else UNITS)
    if hidden % arguments.head_size:
        raise BppsaError(
            f"--hidden {hidden} is no multiple of --head-size {arguments.head_size}: heads are of one size"
        )
    steps = arguments.steps or (QUICK_STEPS if arguments.quick else HEADS_STEPS)
    batches, heads = (
        arguments.batch or HEADS_BATCH[: 1 if arguments.quick else None],
        hidden // arguments.head_size,
    )
    rows, note = [], f"ours on {thread_count(arguments.threads)}"
    for cell, batch in itertools.product(arguments.cells, batches):
        name = f"{cell} H={hidden}, {heads} heads, B={batch} T={steps}"
        case = Case(name, cell, steps, FEATURES, batch, hidden, heads)
        options = {**_options(arguments, case), "flush": True}
        rivals = {
            DENSE: torch_sides(DENSE, TorchGradients, {**options, "heads": 1}, arguments.threads),
            STEPPED: torch_sides(STEPPED, SteppedGradients, options, arguments.threads),
        } if arguments.against == "torch" else {}  # fmt: skip
        measured = measure_case(
            arguments, case, {n: s for sides in rivals.values() for n, s in sides.items()}
        )
        groups = [best({name: measured[name] for name in names}) for names in rivals.values()] or [None]
        for rival in groups:
            rows += _timed(case, measured["ours"], rival, note)
    return rows


BENCHMARKS = {
    "rnn": SimpleNamespace(
        __doc__="The paper's RNN on bitstreams: forward, and back to every parameter (tables 4 and 5).",
        AGAINST=AGAINST, add_arguments=partial(add_cases, cases=CASES["rnn"]), run=run_cases,
    ),
    "gru": SimpleNamespace(
        __doc__="The paper's GRU on MFCC features: forward, and back to every parameter (table 6).",
        AGAINST=AGAINST, add_arguments=partial(add_cases, cases=CASES["gru"]), run=run_cases,
    ),
    "recurrent": SimpleNamespace(
        __doc__="RNN, GRU and LSTM of many sizes: forward, and back to every parameter.",
        AGAINST=GRID_AGAINST, SEVERAL=("torch",), add_arguments=add_grid, run=run_grid, table=grid_table,
    ),
    "heads": SimpleNamespace(
        __doc__="Recurrent layers with heads beside PyTorch's dense ones, and those stepped by PyTorch.",
        AGAINST=AGAINST, add_arguments=add_heads, run=run_heads,
    ),
}  # fmt: skip
