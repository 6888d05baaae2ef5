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

    def add(name: str, function: str, summary: str, example: str) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name, help=summary, description=summary, example=f"bppsa-plan {name} {example}"
        )
        command.set_defaults(run=f"plans.{function}")
        return command

    build = add(
        "build", "commands:run_build", "Compute the plan of a network.", "lenet5 --batch-size 32 -o plan.h5"
    )
    cli.add_model(build)
    cli.add_mode(build)
    cli.add_output(build, "FILE", "Write this HDF5 file.")
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
        "--model", metavar="MODEL", help="Check that the plan belongs to this model. Default: no check."
    )
    cli.add_network_options(verify)
    cli.add_mode(verify)

    draw = add(
        "draw", "commands:run_draw", "Draw a schedule (paper, figure 3).",
        "plan.h5 --schedule blelloch -o schedule.png",
    )  # fmt: skip
    _add_file(draw)
    cli.add_output(draw, "PNG", "Write this picture.")
    draw.add_argument(
        "--schedule", choices=SCHEDULES, help="Draw this schedule. Default: the last schedule of the plan."
    )
    draw.add_argument("--chain", type=int, default=0, metavar="K", help="Draw this chain, counted from 0.")

    explain = add(
        "explain", "explain:run_explain",
        "Print, for p = 1, 2, 4, … workers, the multiply-adds on the critical path of each schedule and of "
        "back-propagation.",
        "plan.h5 --workers 1,8,64",
    )  # fmt: skip
    _add_file(explain)
    explain.add_argument(
        "--workers", type=cli.positive_list, metavar="P,P,…",
        help="Count for these numbers of workers. Default: 1, 2, 4, … and the chain length.",
    )  # fmt: skip
    cli.add_batch_size(explain, None, "Count for this batch size. Default: the batch size of the plan.")
    explain.add_argument(
        "--memory-limit", type=cli.byte_size, metavar="BYTES",
        help="Limit the memory of a hybrid schedule, for example 2GiB. Default: no limit.",
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
        help=f"Plan these schedules: {', '.join(SCHEDULES)}. Default: all that fit the memory limit.",
    )  # fmt: skip
    build.add_argument(
        "--levels", type=level_count, default="auto", metavar="auto|N",
        help="Set the up-sweep levels of the hybrid schedule. auto picks those with the fewest multiply-adds "
        "on the critical path, and 0 levels for one worker.",
    )  # fmt: skip
    cli.add_batch_size(build, 256, "Plan for batches of at most B samples.")
    build.add_argument(
        "--workers", type=cli.positive, metavar="P",
        help="Share the steps of a schedule among P workers. Default: 1.",
    )  # fmt: skip
    build.add_argument(
        "--memory-limit", type=cli.byte_size, metavar="BYTES",
        help="Limit the memory of a schedule, per rank, for example 2GiB. Default: 3/4 of the free memory.",
    )  # fmt: skip
    build.add_argument(
        "--rank-count", type=cli.positive, metavar="P",
        help="Split the layers over P ranks. Default: no ranks.",
    )  # fmt: skip
    cli.add_partition(build, "made by --rank-count and --balance")
    build.add_argument(
        "--balance", choices=BALANCES,
        help="Balance the ranks by multiply-adds of a training step, or by its measured seconds. Default: "
        "multiply-adds.",
    )  # fmt: skip


def _add_pipeline_options(pipeline: argparse.ArgumentParser) -> None:
    cli.add_ppv(pipeline, None)
    pipeline.add_argument(
        "--pipeline", choices=(*PIPELINES, "all"), default="stale", help="Use this schedule, or all."
    )
    cli.add_batch_size(pipeline, 32)
    cli.add_micro_batches(pipeline, None, " Default: the number of stages.")
    pipeline.add_argument(
        "--draw", type=Path, metavar="PNG",
        help="Draw the schedules by cycles into this picture. Default: no picture.",
    )  # fmt: skip
    _add_json(pipeline)


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="Read this plan.")


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
    return cli.run_command(arguments.run, arguments)


if __name__ == "__main__":
    sys.exit(main())
