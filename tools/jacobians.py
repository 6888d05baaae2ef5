"""Write, list and draw the transposed Jacobians of a network."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bppsa_cupy.tools import cli

#: Pictures of recurrent layers over time.
OVER_TIME = {
    "spectrum": "Draw the singular values of recurrent layers at every time step.",
    "norms": "Draw how gradients of recurrent layers grow or vanish over time.",
    "lyapunov": "Draw the Lyapunov exponents of recurrent layers over time.",
}


def parser() -> cli.Parser:
    """The command line."""
    result = cli.command(
        "bppsa-jacobians", __doc__, "bppsa-jacobians dump lenet5 --data digits -o jacobians.h5"
    )
    commands = result.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, function: str, summary: str, example: str) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name, help=summary, description=summary, example=f"bppsa-jacobians {name} {example}"
        )
        command.set_defaults(name=name, run=f"jacobian_files:{function}")
        if name != "dump":
            command.add_argument("file", type=Path, metavar="FILE", help="Read this file of Jacobians.")
            command.add_argument(
                "--unsealed", action="store_true",
                help="Accept a file without a checksum, which another program wrote.",
            )  # fmt: skip
        return command

    dump = add(
        "dump", "run_dump", "Write the Jacobians of one forward and backward pass.",
        "lenet5 --data digits --from lenet5.h5 -o jacobians.h5",
    )  # fmt: skip
    cli.add_model(dump)
    cli.add_mode(dump)
    _add_dump_options(dump)

    show = add("show", "run_show", "List the Jacobians of a file.", "jacobians.h5")
    show.add_argument("--json", action="store_true", help="Print one JSON object instead of a table.")

    plot = add(
        "plot", "run_plot", "Draw the zeros of Jacobians (paper, figure 5), or the values of small ones.",
        "jacobians.h5 --layer 0 -o jacobians.png",
    )  # fmt: skip
    _add_plot_options(plot)

    page = add("report", "run_report", "Write all facts about a file as one page of HTML.", "jacobians.h5")
    cli.add_output(page, "HTML", "Write this page. Default: FILE with the suffix .html.", required=False)

    for name, summary in OVER_TIME.items():
        _add_over_time(add(name, "run_over_time", summary, f"jacobians.h5 -o {name}.png"))
    return result


def _add_dump_options(dump: argparse.ArgumentParser) -> None:
    cli.add_output(dump, "FILE", "Write this HDF5 file.")
    dump.add_argument("--data", required=True, metavar="PATH", help=f"Read {cli.DATA}.")
    cli.add_batch_size(dump, 16)
    dump.add_argument(
        "--sample", type=int, metavar="K", help="Write only this sample's matrices. Default: all samples."
    )
    dump.add_argument("--compress", action="store_true", help="Compress the file with shuffle and gzip.")


def _add_plot_options(plot: argparse.ArgumentParser) -> None:
    cli.add_output(plot, "PNG", "Write this picture.")
    plot.add_argument(
        "--layer", type=int, action="append", metavar="K",
        help="Draw this layer; repeat the option for more layers. Default: all layers.",
    )  # fmt: skip
    plot.add_argument("--step", type=int, default=0, metavar="T", help="Draw this step of recurrent layers.")
    plot.add_argument("--sample", type=int, default=0, metavar="K", help="Draw this sample of the batch.")
    plot.add_argument(
        "--show", choices=("auto", "values", "zeros"), default="auto",
        help="Draw values, or the positions of zeros. auto draws values of up to 64 rows and columns.",
    )  # fmt: skip
    for side in ("rows", "columns"):
        plot.add_argument(
            f"--{side}", type=window, default=(None, None), metavar="FIRST:END",
            help=f"Draw only these {side}. Default: all {side}.",
        )  # fmt: skip


def _add_over_time(parser: argparse.ArgumentParser) -> None:
    cli.add_output(parser, "PNG", "Write this picture.")
    for option, meaning in (
        ("layer", "Draw only this layer. Default: all recurrent layers."),
        ("inner", "Draw only this inner layer, from 0. Default: all inner layers."),
        ("sample", "Draw only this sample. Default: all samples."),
    ):
        parser.add_argument(f"--{option}", type=int, metavar="K", help=meaning)
    parser.add_argument(
        "--direction", choices=("forward", "backward"), help="Draw only this direction. Default: both."
    )
    parser.add_argument(
        "--steps", type=window, metavar="FIRST:END", help="Draw only these time steps. Default: all steps."
    )


def window(text: str) -> tuple[int | None, int | None]:
    """The argument type of a half-open range: "10:20", ":20", "10:"."""
    first, colon, end = text.partition(":")
    try:
        if colon:
            return (int(first) if first else None, int(end) if end else None)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a range: give a range such as 10:20, :20 or 10:")


def main(argv: list[str] | None = None) -> int:
    """Entry point of bppsa-jacobians; returns the exit code."""
    arguments = parser().parse_args(argv)
    return cli.run_command(arguments.run, arguments)


if __name__ == "__main__":
    sys.exit(main())
