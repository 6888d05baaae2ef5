"""Reproduce the figures of the two papers: numbers as JSON, and a picture of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bppsa_cupy.tools import cli
from bppsa_cupy.tools.choices import AUGMENTATIONS, SCOPES

#: Types of options that several figures have, and what they mean.
OPTIONS: dict[str, tuple[Any, str]] = {
    "epochs": (cli.positive, "Train for N epochs."),
    "iterations": (cli.positive, "Stop after N steps."),
    "batch_size": (cli.positive, "Set the batch size."),
    "lr": (float, "Set the learning rate."),
    "momentum": (float, "Set the momentum."),
    "clip": (float, "Clip the gradients to this norm."),
    "seed": (cli.not_negative, "Seed the parameters and the order of the samples."),
    "seeds": (cli.positive, "Train with the seeds 0 to N - 1."),
    "threads": (cli.positive, "Give PyTorch N threads on the host."),
}


def parser() -> cli.Parser:
    """The command line, one subcommand per figure."""
    result = cli.command("bppsa-reproduce", __doc__, "bppsa-reproduce figure6 --data cifar10")
    figures = result.add_subparsers(dest="figure", required=True, metavar="FIGURE")
    for name, (function, add, data, summary) in FIGURES.items():
        figure = figures.add_parser(
            name, help=summary, description=summary, example=f"bppsa-reproduce {name} {data}".rstrip()
        )
        add(figure)
        figure.add_argument(
            "-o", "--output", type=Path, default=Path("docs/results"), metavar="FOLDER",
            help=f"Write {name}.json and {name}.png to this folder.",
        )  # fmt: skip
        cli.add_device(figure)
        figure.set_defaults(run=f"reproduction.{function}")
    return result


def add_options(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """Those of OPTIONS that are given a default."""
    for name, default in defaults.items():
        kind, meaning = OPTIONS[name]
        text = f"{meaning} Default: no limit." if default is None else meaning
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default, metavar="N", help=text)


def _add_data(parser: argparse.ArgumentParser, meaning: str, **options: Any) -> None:
    parser.add_argument("--data", required=True, metavar="PATH", help=meaning, **options)


def _add_figure6(parser: argparse.ArgumentParser) -> None:
    _add_data(parser, "Train on this folder with the binary files of CIFAR-10.")
    add_options(parser, iterations=200, batch_size=64, lr=0.001, momentum=0.9, seed=0)


def _add_figure7(parser: argparse.ArgumentParser) -> None:
    _add_data(parser, "Train on this file of bppsa-data bitstream, T = 1000.")
    add_options(parser, epochs=3, lr=3e-4, iterations=None, batch_size=16, clip=1.0, seed=0, threads=1)


def _add_figure13(parser: argparse.ArgumentParser) -> None:
    _add_data(parser, "Train on these files of bppsa-data audio.", nargs="+")
    add_options(parser, epochs=15, lr=1e-3, iterations=None, batch_size=16, clip=1.0, seed=0, threads=1)


def _add_prune(parser: argparse.ArgumentParser) -> None:
    _add_data(parser, "Train on this folder with the binary files of CIFAR-10.")
    parser.add_argument(
        "--model", default="vgg11", metavar="MODEL", help="Train this model; see bppsa-train --help."
    )
    parser.add_argument(
        "--prune", type=cli.fraction, default=0.97, metavar="F", help="Prune this share of the weights."
    )
    parser.add_argument(
        "--prune-scope", choices=SCOPES, default="layer", help="Prune the share in each layer, or over all."
    )
    for name, default, meaning in (
        ("retrain", 300, "Retrain for N steps."),
        ("test-samples", 2000, "Test on N samples."),
    ):
        parser.add_argument(f"--{name}", type=cli.positive, default=default, metavar="N", help=meaning)
    parser.add_argument(
        "--retrain-lr", type=float, default=1e-3, metavar="RATE", help="Retrain with this learning rate."
    )
    add_options(parser, iterations=300, batch_size=32, lr=3e-4, seed=0)
    cli.add_dtype(parser)


def _add_resnet20(parser: argparse.ArgumentParser) -> None:
    _add_data(parser, "Train on these images; see bppsa-train --help.")
    parser.add_argument(
        "--model", default="resnet20", metavar="MODEL",
        help="Train this convolutional model. It also names the files.",
    )  # fmt: skip
    add_options(parser, epochs=8, iterations=None, batch_size=32, lr=0.05, seeds=1)
    parser.add_argument(
        "--threads", type=cli.positive, metavar="N", help="Give PyTorch N threads. Default: all cores."
    )
    parser.add_argument(
        "--lr-schedule", metavar="SCHEDULE",
        help="Change the learning rate; see bppsa-train --help. Default: constant.",
    )  # fmt: skip
    parser.add_argument(
        "--augment", choices=AUGMENTATIONS,
        help="Augment the images; see bppsa-train --help. Default: no change.",
    )  # fmt: skip
    cli.add_dtype(parser)


def _add_pipeline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--like", default="", metavar="TEXT", help="Train only cases whose name contains TEXT. Default: all."
    )
    add_options(parser, seeds=1)
    parser.add_argument(
        "--epochs", type=cli.positive, metavar="N",
        help="Train the shortest case for N epochs, and others in proportion. Default: 12.",
    )  # fmt: skip


#: By the figure's name: what runs, what adds its options, its data in the example, and what it shows.
FIGURES: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], str, str]] = {
    "figure6": ("figure6:run_figure6", _add_figure6, "--data cifar10",
                "Train LeNet-5 on CIFAR-10 by every method: the loss curves are equal."),
    "figure7": ("figure7:run_figure7", _add_figure7, "--data bits.h5",
                "Train an RNN on bitstreams by bppsa-cupy and by PyTorch."),
    "figure13": ("figure7:run_figure13", _add_figure13, "--data audio.h5",
                 "Train a GRU on audio by bppsa-cupy and by PyTorch."),
    "pipeline": ("stale_weights:run_pipeline", _add_pipeline, "--seeds 5",
                 "Train LeNet-5 on digits with stale weights, by the second paper's schedules."),
    "prune": ("prune:run_prune", _add_prune, "--data cifar10",
              "Prune VGG-11 and retrain it by back-propagation and by scan."),
    "resnet20": ("resnet20:run_resnet20", _add_resnet20, "--data cifar10",
                 "Train ResNet-20 on CIFAR-10 by bppsa-cupy and by PyTorch."),
}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Entry point of bppsa-reproduce; returns the exit code."""
    arguments = parser().parse_args(argv)
    arguments.command = " ".join(["bppsa-reproduce", *(sys.argv[1:] if argv is None else argv)])
    return cli.run_command(arguments.run, arguments)


if __name__ == "__main__":
    sys.exit(main())
