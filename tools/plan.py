"""Build, show, verify and draw plans: the products and schedules of a network's scans."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bppsa_cupy.tools import cli
from bppsa_cupy.tools.choices import BALANCES, PIPELINES, SCHEDULES


def parser() -> cli.Parser:
    """The command line."""
    result = cli.command("bppsa-plan", __doc__, "bppsa-plan build lenet5 --batch-size 32 -o plan.h5")
    commands = result.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: str, summary: str, example: str) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name, help=summary, description=summary, example=f"bppsa-plan {name} {example}"
        )
        command.set_defaults(run=f"plans.{run}")
        return command

    build = add(
        "build", "commands:run_build", "Compute the plan of a network.", "lenet5 --batch-size 32 -o plan.h5"
    )
    cli.add_model(build)
    cli.add_mode(build)
    cli.add_output(build, "FILE", "HDF5 file to write.")
    _add_build_options(build)

    show = add(
        "show", "commands:run_show", "Print the sizes and schedules of a plan or planned product.",
        "plan.h5",
    )  # fmt: skip
    _add_file(show)
    _add_json(show)

    verify = add(
        "verify", "commands:run_verify", "Check a plan or planned product by making every product again.",
        "plan.h5 --model lenet5",
    )  # fmt: skip
    _add_file(verify)
    verify.add_argument(
        "--model", metavar="MODEL", help="Check that the plan belongs to this network. Default: no check."
    )
    cli.add_network_options(verify)
    cli.add_mode(verify)

    draw = add(
        "draw", "commands:run_draw", "Draw a schedule (paper, figure 3); over ranks with its messages.",
        "plan.h5 --schedule blelloch -o schedule.png",
    )  # fmt: skip
    _add_file(draw)
    cli.add_output(draw, "PNG", "Picture to write.")
    draw.add_argument(
        "--schedule", choices=SCHEDULES, help="Schedule to draw. Default: the last one of the plan."
    )
    draw.add_argument("--chain", type=int, default=0, metavar="K", help="Chain of layers to draw, from 0.")

    explain = add(
        "explain", "explain:run_explain",
        "Print, for p = 1, 2, 4, … workers, the multiply-adds on the critical path of each schedule and of "
        "back-propagation.",
        "plan.h5 --workers 1,8,64",
    )  # fmt: skip
    _add_file(explain)
    explain.add_argument(
        "--workers", type=cli.positive_list, metavar="P,P,…",
        help="Numbers of workers. Default: 1, 2, 4, … and the chain length.",
    )  # fmt: skip
    explain.add_argument(
        "--batch-size", type=cli.positive, metavar="B", help="Batch size. Default: the plan's."
    )
    explain.add_argument(
        "--memory-limit", type=cli.byte_size, metavar="BYTES",
        help="Memory that a hybrid schedule may need, as 2GiB. Default: no limit.",
    )  # fmt: skip
    _add_json(explain)

    pipeline = add(
        "pipeline", "pipeline:run_pipeline",
        "Print the stages of a pipeline, the share of its weights that is stale, and its memory by formula.",
        "resnet20 --ppv 7 --draw figure4.png",
    )  # fmt: skip
    cli.add_model(pipeline)
    _add_pipeline_options(pipeline)
    return result


def _add_build_options(build: argparse.ArgumentParser) -> None:
    build.add_argument(
        "--schedules", type=cli.names_of(SCHEDULES), metavar="NAME,NAME",
        help=f"Schedules to plan: {', '.join(SCHEDULES)}. Default: all that fit the memory limit.",
    )  # fmt: skip
    build.add_argument(
        "--levels", type=level_count, default="auto", metavar="auto|N",
        help="Up-sweep levels of the hybrid schedule. auto has the fewest multiply-adds on the critical "
        "path, and 0 levels for one worker.",
    )  # fmt: skip
    build.add_argument(
        "--batch-size", type=cli.positive, default=256, metavar="B", help="Largest batch size."
    )
    build.add_argument(
        "--workers", type=cli.positive, metavar="P",
        help="Number of workers that share the steps. Default: 1, as a device runs one after another.",
    )  # fmt: skip
    build.add_argument(
        "--memory-limit", type=cli.byte_size, metavar="BYTES",
        help="Memory that a schedule may need, over ranks on each of them, as 2GiB. Default: 3/4 of the free "
        "memory.",
    )  # fmt: skip
    build.add_argument(
        "--rank-count", type=cli.positive, metavar="P",
        help="Number of ranks that the layers are split over. Default: no ranks.",
    )  # fmt: skip
    cli.add_partition(build)
    build.add_argument(
        "--balance", choices=BALANCES,
        help="Make parts equal in multiply-adds of a training step, its measured seconds, bytes of the "
        "Jacobians' values, or numbers of chain elements. Default: multiply-adds.",
    )  # fmt: skip


def _add_pipeline_options(pipeline: argparse.ArgumentParser) -> None:
    cli.add_ppv(pipeline)
    pipeline.add_argument(
        "--pipeline", choices=(*PIPELINES, "all"), default="stale", help="Schedule of the pipeline, or all."
    )
    pipeline.add_argument("--batch-size", type=cli.positive, default=32, metavar="B", help="Batch size.")
    pipeline.add_argument(
        "--micro-batches", type=cli.positive, metavar="M",
        help="Micro-batches of a batch, for schedules that have them. Default: the number of stages.",
    )  # fmt: skip
    pipeline.add_argument(
        "--draw", type=Path, metavar="PNG",
        help="Picture of the schedules by cycles, figure 4 for the stale one. Default: no picture.",
    )  # fmt: skip
    _add_json(pipeline)


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="Plan to read.")


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="Print one JSON object instead of tables.")


def level_count(text: str) -> int | str:
    """The argument type of "auto" or a number of levels."""
    if text == "auto":
        return text
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of levels: give auto, 0, 1, …")
    return int(text)


def main(argv: list[str] | None = None) -> int:
    """Entry point of bppsa-plan; returns the exit code."""
    arguments = parser().parse_args(argv)
    return cli.run(arguments.run, arguments)


if __name__ == "__main__":
    sys.exit(main())
