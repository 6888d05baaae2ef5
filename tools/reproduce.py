"""Reproduce the figures of the two papers: numbers as JSON, and a picture of them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bppsa_cupy.tools import cli
from bppsa_cupy.tools.reproduction import (
    forgetting,
    images,
    lenet5,
    retraining,
    sequences,
    stale_weights,
)


def parser() -> argparse.ArgumentParser:
    """The command line, one subcommand a figure."""
    result = cli.command("bppsa-reproduce", __doc__)
    figures = result.add_subparsers(dest="figure", required=True)
    for name, add_arguments, run, summary in (
        ("figure6", lenet5.add_arguments, lenet5.run,
         "LeNet-5 on CIFAR-10 by every method: the same loss curve"),
        ("figure7", sequences.add_figure7, sequences.figure7, "an RNN on bitstreams, by us and by PyTorch"),
        ("figure13", sequences.add_figure13, sequences.figure13, "a GRU on audio, by us and by PyTorch"),
        ("forgetting", forgetting.add_arguments, forgetting.run,
         "gradients on their way back over sequences, by cell and radius"),
        ("pipeline", stale_weights.add_arguments, stale_weights.run,
         "training with stale weights, by the tables of its paper"),
        ("prune", retraining.add_arguments, retraining.run,
         "VGG-11 pruned and retrained by back-propagation and by scan"),
        ("resnet20", images.add_arguments, images.run, "ResNet-20 on CIFAR-10, by us and by PyTorch"),
    ):  # fmt: skip
        figure = figures.add_parser(name, help=summary)
        add_arguments(figure)
        figure.add_argument(
            "--out", type=Path, default="docs/results", help=f"folder of {name}.json and {name}.png"
        )
        cli.add_device(figure)
        figure.set_defaults(run=run)
    return result


def main(argv: list[str] | None = None) -> int:
    """Entry point of bppsa-reproduce; returns the exit code."""
    arguments = parser().parse_args(argv)
    arguments.command = " ".join(["bppsa-reproduce", *(sys.argv[1:] if argv is None else argv)])
    return cli.run(arguments.run, arguments)


if __name__ == "__main__":
    sys.exit(main())
