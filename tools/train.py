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
    cli.add_model(result, required=False, default="the model of the --resume checkpoint")
    result.set_defaults(seed=None, dtype=None)
    result.add_argument(
        "--data", metavar="PATH", help=f"Train on {cli.DATA}. Default: the data of the --resume checkpoint."
    )
    result.add_argument(
        "--plan", type=Path, metavar="FILE",
        help="Use this plan of bppsa-plan. Scans over layers need a plan. Default: no plan.",
    )  # fmt: skip
    result.add_argument("--method", choices=METHODS, help="Use this backward method. Default: auto.")
    result.add_argument(
        "--epochs", type=cli.positive, metavar="N",
        help="Train for this total number of epochs. Default: 1, or as many as --iterations needs.",
    )  # fmt: skip
    result.add_argument(
        "--iterations", type=cli.positive, metavar="N",
        help="Stop after this total number of steps. Default: no limit.",
    )  # fmt: skip
    cli.add_batch_size(result, None, "Set the batch size. Default: 64.")
    _add_update(result)
    _add_sparsity(result)
    result.add_argument(
        "--checkpoint", type=Path, metavar="FILE",
        help="Write a checkpoint to this file after every epoch. Default: the file of --resume, or none.",
    )  # fmt: skip
    result.add_argument(
        "--resume", type=Path, metavar="FILE",
        help="Continue from this checkpoint. It also supplies the options that you omit. Default: start a "
        "new training.",
    )  # fmt: skip
    result.add_argument(
        "--log", type=Path, metavar="FILE", help="Write one JSON object per step to this file. Default: none."
    )
    result.add_argument("--plot", type=Path, metavar="PNG", help="Draw the loss in this file. Default: none.")
    _add_ranks(result)
    _add_pipeline(result)
    return result


def _add_update(parser: argparse.ArgumentParser) -> None:
    update = parser.add_argument_group("optimizer")
    update.add_argument("--optimizer", choices=OPTIMIZERS, help="Use this optimizer. Default: sgd.")
    update.add_argument("--lr", type=float, metavar="RATE", help="Set the learning rate. Default: 0.01.")
    update.add_argument("--momentum", type=float, metavar="M", help="Set the momentum of sgd. Default: 0.9.")
    update.add_argument(
        "--nesterov", action="store_true", default=None, help="Use Nesterov momentum with sgd."
    )
    update.add_argument(
        "--weight-decay", type=float, metavar="W", help="Set the weight decay. Default: 0; 0.01 with adamw."
    )
    update.add_argument(
        "--lr-schedule", metavar="SCHEDULE",
        help="Change the learning rate by step:EPOCHS:GAMMA, half:EPOCHS, inv:GAMMA:POWER, cosine[:STEPS] or "
        "warmup:STEPS; separate several schedules by commas. Default: constant.",
    )  # fmt: skip
    update.add_argument(
        "--clip", type=float, metavar="NORM", help="Clip the gradients to this norm. Default: no limit."
    )
    update.add_argument(
        "--label-smoothing", type=float, metavar="E", help="Smooth the training labels by E. Default: 0."
    )
    update.add_argument(
        "--augment", choices=AUGMENTATIONS,
        help="Augment the training images by random padded crops and flips. Default: no change.",
    )  # fmt: skip


def _add_sparsity(parser: argparse.ArgumentParser) -> None:
    changes = parser.add_argument_group(
        "masks that change", "Options of training by bp in one process without a plan."
    )
    changes.add_argument(
        "--prune-to", type=cli.fraction, metavar="F",
        help="Prune gradually until this share of the weights is zero, for example 0.97. The share grows "
        "from --prune along a cubic (Zhu and Gupta 2017). Default: no gradual pruning.",
    )  # fmt: skip
    changes.add_argument(
        "--prune-from-step", type=cli.not_negative, metavar="S", help="Prune from this step on. Default: 0."
    )
    changes.add_argument(
        "--prune-until-step", type=cli.positive, metavar="S",
        help="Reach the share of --prune-to at this step. Default: none; required with --prune-to.",
    )  # fmt: skip
    changes.add_argument(
        "--prune-every", type=cli.positive, metavar="N", help="Prune every N steps. Default: 100."
    )
    changes.add_argument(
        "--rigl-until-step", type=cli.positive, metavar="S",
        help="Until this step, drop weights by magnitude and grow others by gradient (RigL, Evci et al. "
        "2020). Default: no RigL.",
    )  # fmt: skip
    changes.add_argument(
        "--rigl-every", type=cli.positive, metavar="N", help="Drop and grow every N steps. Default: 100."
    )
    changes.add_argument(
        "--rigl-fraction", type=cli.fraction, metavar="F",
        help="Drop this share of the remaining weights at first. Default: 0.3.",
    )  # fmt: skip


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("ranks", "mpiexec -n P starts P ranks: processes with a device each.")
    group.add_argument(
        "--ranks", choices=RANKS,
        help="Split each batch, the layers of the network, or the time steps over the ranks. Default: "
        "no ranks.",
    )  # fmt: skip
    group.add_argument(
        "--micro-batch", type=cli.positive, metavar="B",
        help="Accumulate gradients over B samples at a time. With --ranks batch, results then have the same "
        "bits for any number of ranks. Default: the samples of a rank.",
    )  # fmt: skip
    cli.add_partition(group, "that of --plan, or parts with equal multiply-adds")
    group.add_argument(
        "--transport", choices=TRANSPORTS, default="host",
        help="Send arrays of GPUs through host memory, or by NCCL.",
    )  # fmt: skip


def _add_pipeline(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "pipeline", "The stages of the network work on several batches at a time. One process computes "
        "all stages, or mpiexec -n STAGES starts one process per stage.",
    )  # fmt: skip
    cli.add_ppv(group, "no pipeline")
    group.add_argument("--pipeline", choices=PIPELINES, help="Use this schedule. Default: stale.")
    cli.add_micro_batches(group, None, " Default: 1.")
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
        return ranks.run_command(train_model, arguments)


def train_model(arguments: argparse.Namespace) -> None:
    """Train as the arguments say, and print what came out."""
    from bppsa_cupy.tools import training

    training.train_model(arguments)


if __name__ == "__main__":
    sys.exit(main())
