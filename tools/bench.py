"""Measure against PyTorch, JAX and SciPy, alternating between the sides in one run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks import TABLE, Benchmark, options

PROGRAM = "bppsa-bench"


def parser() -> cli.Parser:
    """The command line, one subcommand per benchmark."""
    result = cli.command(PROGRAM, __doc__, f"{PROGRAM} gru --against torch -o gru.json")
    commands = result.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, row in TABLE.items():
        example = f"{PROGRAM} {name}" + (f" --against {row.against[0]}" if row.against else " lenet5")
        command = commands.add_parser(
            name, help=row.summary, description=row.summary, example=f"{example} -o {name}.json"
        )
        cli.add_output(command, "FILE", "Write the numbers to this JSON file. Default: none.", required=False)
        cli.add_device(command)
        if row.against:
            _add_measuring(command, row)
        if row.options:
            getattr(options, row.options)(command)
        command.set_defaults(benchmark=row)
    return result


def _add_measuring(command: cli.Parser, row: Benchmark) -> None:
    """The options of benchmarks that compare."""
    command.add_argument(
        "--against", choices=row.against, nargs="+", default=row.against[: row.several], metavar="RIVAL",
        help=f"Compare with some of {', '.join(row.against)}.",
    )  # fmt: skip
    command.add_argument(
        "--threads", type=cli.positive, metavar="N",
        help="Give each side N threads on the host. Default: all cores.",
    )  # fmt: skip
    command.add_argument(
        "--repeats", type=cli.positive, default=20, metavar="N", help="Measure each side N times."
    )
    command.add_argument(
        "--case-seconds", type=cli.positive, default=60, metavar="S",
        help="Stop a case after S seconds, but not before three measurements of each side.",
    )  # fmt: skip
    command.add_argument(
        "--like", nargs="+", default=[""], metavar="TEXT",
        help="Measure only the cases whose name contains one of these texts. Default: all cases.",
    )  # fmt: skip
    command.add_argument(
        "--cpu-time", action="store_true",
        help="Measure the CPU time of each side instead of the wall time. Use it with one thread if other "
        "programs run.",
    )  # fmt: skip
    command.add_argument(
        "--quick", action="store_true", help="Run small cases in one process, to test the benchmark."
    )


def main(argv: list[str] | None = None) -> int:
    """Entry point of bppsa-bench; returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    arguments = parser().parse_args(words)
    arguments.command = command_line(words)
    return cli.run_command(run_benchmark, arguments)


def run_benchmark(arguments: argparse.Namespace) -> None:
    """Run one benchmark, print its rows and write them; where they come in parts, after every part."""
    from bppsa_cupy.devices import get_device
    from bppsa_cupy.system.files import check_writable
    from bppsa_cupy.tools.benchmarks.tables import table
    from bppsa_cupy.tools.machine import available_cores, provenance

    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        check_writable(arguments.output)
    device = get_device(arguments.device)
    arguments.device, arguments.threads = (
        device.name,
        getattr(arguments, "threads", None) or available_cores(),
    )
    if getattr(arguments, "quick", False):
        arguments.repeats = min(arguments.repeats, 3)
    report: dict[str, Any] = {
        "name": arguments.name,
        "command": arguments.command,
        **provenance(device, arguments.threads),
        "rows": [],
    }
    try:
        for rows in _rows(arguments):
            report["rows"] += [row.to_json() for row in rows]
            if arguments.output is not None:
                cli.write_json(arguments.output, report)
    finally:
        if report["rows"]:
            print(table(report["rows"]))


def _rows(arguments: argparse.Namespace) -> Iterator[list[Any]]:
    from bppsa_cupy.tools.benchmarks.harness import run_cases

    row: Benchmark = arguments.benchmark
    if row.rows:
        yield from row.find(row.rows)(arguments)
        return
    if row.facts:
        yield row.find(row.facts)()
    yield from run_cases(row.find(row.cases)(arguments), arguments)


def command_line(words: list[str]) -> str:
    """The command, without the file that it writes."""
    chosen, skip = [], False
    for word in words:
        if not skip and word not in ("-o", "--output") and not word.startswith("--output="):
            chosen.append(word)
        skip = word in ("-o", "--output")
    return " ".join([PROGRAM, *chosen])


if __name__ == "__main__":
    sys.exit(main())
