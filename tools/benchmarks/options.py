"""The options of each benchmark. This module imports nothing that compiles, so that `--help` is fast."""

from __future__ import annotations

from argparse import ArgumentParser

from bppsa_cupy.tools import cli
from bppsa_cupy.tools.choices import MODELS, PIPELINES, SCHEDULES

#: Hidden sizes, batch sizes and lengths of the grid of recurrent layers.
GRID = {"hidden": [20, 64, 128, 256, 512], "batch": [1, 4, 16, 64], "length": [100, 1000]}
#: Cases of `steps`.
KINDS = ("paper", "images", "grid")
#: Models whose kernels `warm` compiles where none are named; those of other models are among them.
USUAL = ("lenet5", "resnet20", "rnn", "gru", "lstm")
#: What ranks share in `ranks`.
OVER = ("batch", "layers", "time")


def add_jacobians(parser: ArgumentParser) -> None:
    """--autograd-columns."""
    parser.add_argument(
        "--autograd-columns", type=cli.positive, default=200, metavar="N",
        help="Let autograd compute N columns, and scale the time to all columns.",
    )  # fmt: skip


def add_grid(parser: ArgumentParser) -> None:
    """--cells, --hidden, --batch, --length, --inference."""
    cli.add_cells(parser, ["rnn", "gru", "lstm"])
    for option, meaning in (("hidden", "hidden sizes"), ("batch", "batch sizes"), ("length", "lengths T")):
        default = ",".join(map(str, GRID[option]))
        parser.add_argument(
            f"--{option}", type=cli.positive_list, metavar="N,N",
            help=f"Measure these {meaning}. Default: {default}; the first with --quick.",
        )  # fmt: skip
    _add_inference(parser)


def add_jax(parser: ArgumentParser) -> None:
    """--cells."""
    cli.add_cells(parser, ["gru"])


def add_torch(parser: ArgumentParser) -> None:
    """--cells and --batch-first."""
    cli.add_cells(parser, ["gru"])
    parser.add_argument(
        "--batch-first", action="store_true", help="Use sequences (B, T, F). Default: (T, B, F)."
    )


def add_product(parser: ArgumentParser) -> None:
    """--side."""
    parser.add_argument(
        "--side", type=cli.positive, default=129, metavar="N",
        help="Use matrices of a grid with N points per side, and others of similar sizes.",
    )  # fmt: skip


def add_spgemm(parser: ArgumentParser) -> None:
    """--batch-size, --rival-samples, --model, --prune."""
    cli.add_batch_size(parser, 16, "Set the batch size of our products.")
    parser.add_argument(
        "--rival-samples", type=cli.positive, default=2, metavar="N",
        help="Time N samples of the batch, one after another, on the rival's side.",
    )  # fmt: skip
    parser.add_argument("--model", default="vgg11", metavar="MODEL", help="Use the up-sweep of this model.")
    parser.add_argument(
        "--prune", type=cli.fraction, default=0.97, metavar="F", help="Prune this share of the weights."
    )


def add_train(parser: ArgumentParser) -> None:
    """--model, --prune, --data, --batch-size, --dtype, --tolerance, --methods, --inference."""
    _add_model(parser, "lenet5")
    _add_inference(parser)
    parser.add_argument(
        "--prune", type=cli.fraction, nargs="+", metavar="F", default=[0.0],
        help="Prune this share of the weights. Several shares are measured one after another.",
    )  # fmt: skip
    parser.add_argument(
        "--data", metavar="PATH", help="Use these images; see bppsa-train --help. Default: random images."
    )
    cli.add_batch_size(parser, 64)
    cli.add_dtype(parser)
    parser.add_argument(
        "--tolerance", type=cli.fraction, metavar="X",
        help="Allow this relative difference to the results of the rival. Deep float32 networks need more. "
        "Default: 1e-4, or 1e-10 in float64.",
    )  # fmt: skip
    parser.add_argument(
        "--methods", nargs="+", choices=("bp", *SCHEDULES, "auto"), default=["auto"],
        help="Measure these methods of the backward pass.",
    )  # fmt: skip


def add_steps(parser: ArgumentParser) -> None:
    """--kinds."""
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=list(KINDS),
        help="Run the recurrent networks of the paper, image models, or a grid of recurrent layers.",
    )  # fmt: skip


def add_ranks(parser: ArgumentParser) -> None:
    """--rank-count, --over, --model, --prune, --batch-size, --length, --hidden-size."""
    _add_rank_count(parser)
    parser.add_argument(
        "--over", nargs="+", choices=OVER, default=list(OVER), help="Split these over the ranks."
    )
    _add_model(parser, "vgg11")
    parser.add_argument(
        "--prune", type=cli.fraction, metavar="F", help="Prune this share of the weights. Default: 0."
    )
    cli.add_batch_size(parser, 16)
    parser.add_argument(
        "--length", type=cli.positive, metavar="T",
        help="Use sequences of T steps. Default: 500, 5000 and 30000; 10⁶ for linear recurrences.",
    )  # fmt: skip
    parser.add_argument(
        "--hidden-size", type=cli.positive, metavar="H", help="Set the units of the RNN. Default: 20 and 64."
    )


def add_pipeline(parser: ArgumentParser) -> None:
    """--rank-count, --model, --ppv, --batch-size, --pipelines, --micro-batches, --batches."""
    _add_rank_count(parser)
    parser.add_argument(
        "--model", metavar="MODEL",
        help="Build this model; see bppsa-train --help. Default: lenet5, vgg16 and resnet20.",
    )  # fmt: skip
    cli.add_ppv(parser, "one stage per rank, balanced")
    cli.add_batch_size(parser, None, "Set the batch size; requires --model. Default: 32.")
    parser.add_argument(
        "--pipelines", nargs="+", choices=PIPELINES, default=["stale"], help="Measure these schedules."
    )
    cli.add_micro_batches(parser, 4)
    parser.add_argument(
        "--batches", type=cli.positive, metavar="N", help="Time N batches together. Default: 20 to 100."
    )


def _add_rank_count(parser: ArgumentParser) -> None:
    parser.add_argument("--rank-count", type=cli.positive, default=2, metavar="P", help="Start P ranks.")


def _add_inference(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--inference", action="store_true", help="Time only the forward pass, without gradients."
    )


def _add_model(parser: ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--model", default=default, metavar="MODEL", help="Build this model; see bppsa-train --help."
    )


def add_warm(parser: ArgumentParser) -> None:
    """MODEL … and --dtype."""
    parser.add_argument(
        "models", nargs="*", default=list(USUAL), metavar="MODEL",
        help=f"Compile these models: {', '.join(MODELS)}, path/to/file.py:factory or module:factory.",
    )  # fmt: skip
    cli.add_dtype(parser)
