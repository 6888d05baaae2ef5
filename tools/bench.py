"""Measure against PyTorch and SciPy, side by side in one run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bppsa_cupy.devices import get_device
from bppsa_cupy.system.files import check_writable
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks import find_benchmarks
from bppsa_cupy.tools.benchmarks.harness import Row
from bppsa_cupy.tools.benchmarks.tables import table
from bppsa_cupy.tools.machine import available_cores, provenance

PROGRAM = "bppsa-bench"


def parser(benchmarks: Mapping[str, Any] | None = None, program: str = PROGRAM) -> argparse.ArgumentParser:
    """The command line, one subcommand a benchmark (default: those of `tools/benchmarks/`)."""
    result = cli.command(program, __doc__)
    commands = result.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, module in (find_benchmarks() if benchmarks is None else benchmarks).items():
        summary = module.__doc__ or name
        command = commands.add_parser(name, help=summary.rstrip("."), description=summary)
        command.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here")
        if hasattr(module, "AGAINST"):
            _add_measuring(command, module)
        else:
            command.set_defaults(make_report=module.make_report, table=module.table)
        module.add_arguments(command)
    return result


def _add_measuring(command: argparse.ArgumentParser, module: Any) -> None:
    """The arguments of what measures on a device."""
    cli.add_device(command)
    if getattr(module, "SEVERAL", False):
        command.add_argument(
            "--against", choices=module.AGAINST, nargs="+", default=list(module.SEVERAL), metavar="RIVAL",
            help=f"some of {', '.join(module.AGAINST)} (default: {' '.join(module.SEVERAL)})",
        )  # fmt: skip
    else:
        command.add_argument("--against", choices=module.AGAINST, default=module.AGAINST[0])
    command.add_argument(
        "--threads", type=cli.positive, help="of either side on the host (default: all cores)"
    )
    command.add_argument("--repeats", type=cli.positive, default=20, help="samples a side (default 20)")
    command.add_argument("--quick", action="store_true", help="small, to see that it runs")
    command.set_defaults(run=module.run, make_report=make_report, table=getattr(module, "table", table))


def main(
    argv: list[str] | None = None,
    benchmarks: Mapping[str, Any] | None = None,
    program: str = PROGRAM,
) -> int:
    """Entry point of bppsa-bench; returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    arguments = parser(benchmarks, program).parse_args(words)
    arguments.command = command_line(words, program)
    return cli.run(run, arguments)


def run(arguments: argparse.Namespace) -> None:
    """Run one benchmark, print its rows and write them; where they come in parts, after every part."""
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        check_writable(arguments.json)
    report = arguments.make_report(arguments)
    rows, report["rows"] = report["rows"], []
    try:
        for part in rows if isinstance(rows, Iterator) else [rows]:
            report["rows"] += part
            if arguments.json is not None:
                cli.write_json(arguments.json, report)
    finally:
        if report["rows"]:
            print(arguments.table(report["rows"]))


def make_report(arguments: argparse.Namespace) -> dict[str, Any]:
    """The object that --json writes; an iterator of parts as its rows, where the benchmark gives them so."""
    device = get_device(arguments.device)
    arguments.device = device.name
    arguments.threads = arguments.threads or available_cores()
    if arguments.quick:
        arguments.repeats = min(arguments.repeats, 3)
    rows: list[Row] | Iterator[list[Row]] = arguments.run(arguments)
    return {
        "name": arguments.name,
        "command": arguments.command,
        **provenance(device, arguments.threads),
        "rows": map(_as_json, rows) if isinstance(rows, Iterator) else _as_json(rows),
    }


def _as_json(rows: list[Row]) -> list[dict[str, Any]]:
    return [row.to_json() for row in rows]


def command_line(words: list[str], program: str = PROGRAM) -> str:
    """The command, without the file it writes."""
    kept, skip = [], False
    for word in words:
        if not skip and word != "--json" and not word.startswith("--json="):
            kept.append(word)
        skip = word == "--json"
    return " ".join([program, *kept])


if __name__ == "__main__":
    sys.exit(main())
