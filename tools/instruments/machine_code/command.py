"""What a step of kernels' hot loops takes by their machine code: no GPU is needed."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.kernel import REALS
from bppsa_cupy.system.files import write_text
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.instruments.machine_code import nvrtc
from bppsa_cupy.tools.instruments.machine_code.cases import PARAMETERS, TARGETS, WIDE_CELLS, WIDTHS
from bppsa_cupy.tools.instruments.machine_code.cluster_walks import cluster_walks, read_kernels
from bppsa_cupy.tools.instruments.machine_code.disassembly import nvdisasm_version
from bppsa_cupy.tools.instruments.machine_code.listing import listing
from bppsa_cupy.tools.instruments.machine_code.measure import Built, Measure, measure
from bppsa_cupy.tools.instruments.machine_code.page import page, summary
from bppsa_cupy.tools.instruments.machine_code.predictions import GRU_CASE, LONGEST, PREDICTED, predictions
from bppsa_cupy.tools.instruments.machine_code.single_steps import single_steps
from bppsa_cupy.tools.instruments.machine_code.walk import PLACES
from bppsa_cupy.tools.lines import aligned
from bppsa_cupy.tools.machine import available_cores


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--kernel, --arch, --hidden, --dtype, --page, --summary, --listing, --loads."""
    parser.add_argument(
        "--kernel", type=_some_of(KERNELS), default=list(KERNELS), metavar="NAME,NAME", help="default all"
    )
    parser.add_argument(
        "--arch", type=_some_of(PARAMETERS), default=list(TARGETS), metavar="NAME,NAME",
        help=f"of {', '.join(PARAMETERS)} (default {','.join(TARGETS)})",
    )  # fmt: skip
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the tables as a Markdown page here")
    parser.add_argument(
        "--summary", type=Path, metavar="FILE", help="and here what is to be expected by them"
    )
    parser.add_argument(
        "--hidden", type=cli.positive, metavar="H", help="width of recurrent kernels (default 20)"
    )
    parser.add_argument("--dtype", choices=REALS, default=REALS[0])
    parser.add_argument(
        "--listing", action="store_true", help="print the loops, with the cycle of each issue"
    )
    parser.add_argument(
        "--loads", choices=PLACES, default="L2", help="where a listing's loads find their values (default L2)"
    )


def _some_of(known: Iterable[str]) -> Any:
    """The argument type of some of these names."""

    def chosen(text: str) -> list[str]:
        unknown = [name for name in text.split(",") if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(known)}")
        return text.split(",")

    return chosen


def make_report(arguments: argparse.Namespace) -> dict[str, Any]:
    """The object that --json writes: a row a kernel and architecture, as `Measure` has its fields."""
    work = [(KERNELS[name], arch) for name in arguments.kernel for arch in arguments.arch]
    options = cli.taken(arguments, "hidden", "dtype")
    for kernel, arch in work if arguments.listing else ():
        print(*listing(Built(kernel, arch, **options), arguments.loads), sep="\n")
    rows = _measured([{"kernel": kernel, "target": arch, **options} for kernel, arch in work])
    predicted: list[dict[str, Any]] = []
    of_gru: list[dict[str, Any]] = []
    wide: list[Measure] = []
    of_clusters: list[Measure] = []
    if set(arguments.kernel) == set(KERNELS) and PREDICTED in arguments.arch:
        of_target = {row.kernel: row for row in rows if row.target == PREDICTED}
        longest = replace(LONGEST, hidden=arguments.hidden or LONGEST.hidden)
        predicted = predictions(KERNELS, of_target, longest)
        of_gru = predictions(KERNELS, of_target, replace(GRU_CASE, hidden=longest.hidden), ("gru",))
        verbs = ("forward", "backward", "reduce")
        walks = [KERNELS[f"{cell}_{verb}"] for cell in WIDE_CELLS for verb in verbs]
        wide = _measured(
            [{"kernel": kernel, "target": PREDICTED, "hidden": H} for kernel in walks for H in WIDTHS]
        )
        of_clusters = _measured(
            [{"kernel": kernel, "target": PREDICTED, "hidden": H} for kernel, H in read_kernels()]
        )
    report = {
        "name": arguments.name,
        "command": arguments.command,
        "versions": {"nvrtc": ".".join(map(str, nvrtc.version())), "nvdisasm": nvdisasm_version()},
        "rows": [asdict(row) for row in rows],
        "widths": [asdict(row) for row in wide],
        "clusters": [asdict(row) for row in of_clusters],
        "predictions": predicted,
        "predictions_gru": of_gru,
        "single_steps": single_steps() if predicted else [],
        "cluster_walks": cluster_walks() if predicted else [],
    }
    if arguments.page is not None:
        write_text(arguments.page, page(report))
    if arguments.summary is not None:
        write_text(arguments.summary, summary(report))
    return report


def _measured(cases: list[dict[str, Any]]) -> list[Measure]:
    """The measures of what `measure` is given, several at once."""
    with ThreadPoolExecutor(available_cores()) as pool:
        return list(pool.map(lambda one: measure(**one), cases))


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as aligned text, each below its kernel and the longest waits."""
    head = ("registers", "spills", "warps", "steps", "instructions", "reals", "L1", "L2", "memory", "loads",
            "stores", "sectors")  # fmt: skip
    first, *lines = aligned([head, *map(_line, rows)], ">" * len(head), indent=2)
    return "\n".join([first, *(f"{_title(row)}\n{line}" for row, line in zip(rows, lines, strict=True))])


def _title(row: dict[str, Any]) -> str:
    hidden = "" if row["hidden"] is None else f", H = {row['hidden']}"
    waits = sorted(row["waits"].items(), key=lambda one: -one[1])[:4]
    told = ", ".join(f"{name} {wait:.0f}" for name, wait in waits)
    return f"{row['kernel']}, {row['target']}{hidden}" + (f"; waits: {told}" if told else "")


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        *(str(row[name]) for name in ("registers", "spill_bytes", "warps", "steps")),
        *(f"{row[name]:,.1f}" for name in ("instructions", "reals")),
        *(f"{row['cycles'][place]:,.0f}" for place in PLACES),
        *(f"{row[name]:,.1f}" for name in ("loads", "stores")),
        "-" if row["sectors"] is None else f"{row['sectors']:,.1f}",
    )
