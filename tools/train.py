"""Train a model on a data set by back-propagation or by scan."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bppsa_cupy.tools import cli
from bppsa_cupy.tools.choices import AUGMENTATIONS, METHODS, OPTIMIZERS, PIPELINES, RANKS, TRANSPORTS


def parser() -> cli.Parser:
    """The command line."""
    result = cli.command(
        "bppsa-train", __doc__, "bppsa-train lenet5 --data digits --epochs 5 --checkpoint lenet5.h5"
    )
    cli.add_model(result, required=False)
    result.set_defaults(seed=None, dtype=None)
    result.add_argument(
        "--data", metavar="PATH",
        help="Data to train on: `digits`, or a path to CIFAR-10's binary layout, IDX files, an .npz file, or "
        "sequences of bppsa-data. Required without --resume.",
    )  # fmt: skip
    result.add_argument(
        "--plan", type=Path, metavar="FILE",
        help="Plan file of bppsa-plan; scans over layers need one. Default: no plan.",
    )  # fmt: skip
    result.add_argument("--method", choices=METHODS, help="Method of the backward pass. Default: auto.")
    result.add_argument(
        "--epochs", type=cli.positive, metavar="N",
        help="Number of epochs in all. Default: 1, or as many as --iterations needs.",
    )  # fmt: skip
    result.add_argument(
        "--iterations", type=cli.positive, metavar="N",
        help="Stop after this number of steps in all. Default: no limit.",
    )  # fmt: skip
    result.add_argument("--batch-size", type=cli.positive, metavar="B", help="Batch size. Default: 64.")
    _add_update(result)
    _add_sparsity(result)
    result.add_argument(
        "--checkpoint", type=Path, metavar="FILE",
        help="Checkpoint to write after every epoch. Default: the file of --resume, or none.",
    )  # fmt: skip
    result.add_argument(
        "--resume", type=Path, metavar="FILE",
        help="Checkpoint to continue from. Options that are left out are those of its training. Default: a "
        "new training.",
    )  # fmt: skip
    result.add_argument(
        "--log", type=Path, metavar="FILE", help="File of one JSON object per step. Default: none."
    )
    result.add_argument("--plot", type=Path, metavar="PNG", help="Picture of the loss. Default: none.")
    _add_ranks(result)
    _add_pipeline(result)
    return result


def _add_update(parser: argparse.ArgumentParser) -> None:
    update = parser.add_argument_group("optimizer")
    update.add_argument("--optimizer", choices=OPTIMIZERS, help="Optimizer. Default: sgd.")
    update.add_argument("--lr", type=float, metavar="RATE", help="Learning rate. Default: 0.01.")
    update.add_argument("--momentum", type=float, metavar="M", help="Momentum of sgd. Default: 0.9.")
    update.add_argument(
        "--nesterov", action="store_true", default=None, help="Use Nesterov momentum with sgd."
    )
    update.add_argument(
        "--weight-decay", type=float, metavar="W", help="Weight decay. Default: 0; 0.01 with adamw."
    )
    update.add_argument(
        "--lr-schedule", metavar="SCHEDULE",
        help="Schedule of the learning rate: step:EPOCHS:GAMMA, half:EPOCHS, inv:GAMMA:POWER, "
        "cosine[:STEPS], warmup:STEPS, or several with commas. Default: constant.",
    )  # fmt: skip
    update.add_argument(
        "--clip", type=float, metavar="NORM", help="Largest norm of the gradients. Default: no limit."
    )
    update.add_argument(
        "--label-smoothing", type=float, metavar="E", help="Label smoothing of the training loss. Default: 0."
    )
    update.add_argument(
        "--augment", choices=AUGMENTATIONS,
        help="Change training images at random, by padded crops and flips. Default: no change.",
    )  # fmt: skip


def _add_sparsity(parser: argparse.ArgumentParser) -> None:
    changes = parser.add_argument_group(
        "masks that change", "In training by bp, of one network without a plan."
    )
    changes.add_argument(
        "--prune-to", type=cli.fraction, metavar="F",
        help="Share of the weights that is pruned at the end. The share grows from that of --prune along a "
        "cubic (Zhu and Gupta 2017). Default: no gradual pruning.",
    )  # fmt: skip
    changes.add_argument(
        "--prune-from-step", type=cli.not_negative, metavar="S", help="First step that prunes. Default: 0."
    )
    changes.add_argument(
        "--prune-until-step", type=cli.positive, metavar="S",
        help="Step at which the share of --prune-to is reached. Required with --prune-to.",
    )  # fmt: skip
    changes.add_argument(
        "--prune-every", type=cli.positive, metavar="N", help="Steps from pruning to pruning. Default: 100."
    )
    changes.add_argument(
        "--rigl-until-step", type=cli.positive, metavar="S",
        help="Move the weights that are not pruned until this step: drop by magnitude, grow by gradient "
        "(RigL, Evci et al. 2020). Default: no RigL.",
    )  # fmt: skip
    changes.add_argument(
        "--rigl-every", type=cli.positive, metavar="N", help="Steps from move to move. Default: 100."
    )
    changes.add_argument(
        "--rigl-fraction", type=cli.fraction, metavar="F",
        help="Share of the weights that is dropped at first. Default: 0.3.",
    )  # fmt: skip


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("ranks", "Processes that mpiexec -n P starts, each with a device.")
    group.add_argument(
        "--ranks", choices=RANKS,
        help="What the ranks share: each batch, the network's layers, or the steps of its sequences. "
        "Default: no ranks.",
    )  # fmt: skip
    group.add_argument(
        "--micro-batch", type=cli.positive, metavar="B",
        help="Sum up gradients of B samples at a time; with --ranks batch the bits are the same for any "
        "number of ranks. Default: a rank's part of the batch.",
    )  # fmt: skip
    cli.add_partition(group)
    group.add_argument(
        "--transport", choices=TRANSPORTS, default="host",
        help="How arrays on GPUs travel: through memory of the host, or by NCCL.",
    )  # fmt: skip


def _add_pipeline(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "pipeline", "Stages of the network that work on several batches. One process acts for all, or "
        "mpiexec -n STAGES starts a process per stage.",
    )  # fmt: skip
    cli.add_ppv(group)
    group.add_argument("--pipeline", choices=PIPELINES, help="Schedule of the pipeline. Default: stale.")
    group.add_argument(
        "--micro-batches", type=cli.positive, metavar="M",
        help="Micro-batches of a batch, for schedules that have them. Default: 1.",
    )  # fmt: skip
    group.add_argument(
        "--non-pipelined-after", type=cli.positive, metavar="N",
        help="Continue without the pipeline after N steps (hybrid training). Default: never.",
    )  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Entry point of bppsa-train; returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    if {"-h", "--help", "--version"} & set(words):  # answered without the imports of ranks
        parser().parse_args(words)
    from bppsa_cupy.tools import ranks

    with ranks.together():
        command = parser()
        arguments = command.parse_args(words)
        if arguments.resume is None and None in (arguments.model, arguments.data):
            command.error("the following arguments are required: MODEL and --data, or --resume FILE")
        return ranks.run(run, arguments)


def run(arguments: argparse.Namespace) -> None:
    """Train as the arguments say, and print what came out."""
    from bppsa_cupy.tools import training

    training.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
