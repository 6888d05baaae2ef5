"""Make data sets of sequences: the paper's bitstreams, and features of audio clips."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bppsa_cupy.tools import cli
from bppsa_cupy.tools.choices import SETS


def parser() -> cli.Parser:
    """The command line, one subcommand per kind of data."""
    result = cli.command("bppsa-data", __doc__, "bppsa-data bitstream --length 1000 -o bits.h5")
    kinds = result.add_subparsers(required=True, metavar="KIND")

    def add(name: str, summary: str, example: str) -> argparse.ArgumentParser:
        command = kinds.add_parser(
            name, help=summary, description=summary, example=f"bppsa-data {name} {example}"
        )
        command.set_defaults(run=f"sequence_files:run_{name}")
        return command

    bits = add("bitstream", "Make the paper's bitstreams (equation 8).", "--length 1000 -o bits.h5")
    _add_bitstream(bits)
    _add_audio(add("audio", "Compute MFCC features of a folder of WAV files.", "recordings -o audio.h5"))
    show = add("show", "Print what a file of sequences holds.", "bits.h5")
    show.add_argument("file", type=Path, metavar="FILE", help="Read this file of sequences.")
    show.add_argument("--json", action="store_true", help="Print one JSON object instead of text.")
    return result


def _add_bitstream(parser: argparse.ArgumentParser) -> None:
    cli.add_output(parser, "FILE", "Write this HDF5 file.")
    parser.add_argument(
        "--length", type=cli.positive, required=True, metavar="T", help="Make samples of T bits."
    )
    parser.add_argument(
        "--samples", type=cli.positive, default=32000, metavar="N", help="Make N training samples."
    )
    parser.add_argument(
        "--test-samples", type=cli.positive, metavar="N", help="Make N test samples. Default: none."
    )
    parser.add_argument(
        "--seed", type=cli.not_negative, default=0, metavar="N", help="Seed the classes and bits."
    )


def _add_audio(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="FOLDER", help="Read this folder of WAV files.")
    cli.add_output(parser, "FILE", "Write this HDF5 file.")
    features = parser.add_argument_group("features")
    features.add_argument("--set", choices=SETS, default="M", help="Use a feature set of Wang et al. 2020.")
    for name, meaning in (
        ("n-mfcc", "Compute N coefficients per channel and drop the first. Default: set by --set."),
        ("n-fft", "Use windows of N samples. Default: set by --set."),
        ("hop-length", "Move the window by N samples per frame. Default: set by --set."),
        ("n-mels", "Use N bands of the mel spectrum. Default: 128."),
    ):
        features.add_argument(f"--{name}", type=cli.positive, metavar="N", help=meaning)
    split = parser.add_argument_group("classes and split")
    split.add_argument(
        "--test-fraction", type=float, default=0.2, metavar="F", help="Test on this share of each class."
    )
    split.add_argument(
        "--seed", type=cli.not_negative, default=0, metavar="N", help="Seed the choice of test clips."
    )


def main(argv: list[str] | None = None) -> int:
    """Entry point of bppsa-data; returns the exit code."""
    arguments = parser().parse_args(argv)
    return cli.run_command(arguments.run, arguments)


if __name__ == "__main__":
    sys.exit(main())
