"""The options of each benchmark. This module imports nothing that compiles, so that `--help` is fast."""

from __future__ import annotations

from argparse import ArgumentParser

from bppsa_cupy.tools import cli
from bppsa_cupy.tools.choices import MODELS, PIPELINES, SCHEDULES

#: Hidden sizes, batches and steps of the grid of recurrent layers.
GRID = {"hidden": [20, 64, 128, 256, 512], "batch": [1, 4, 16, 64], "steps": [100, 1000]}
#: Cases of `steps`.
KINDS = ("paper", "images", "grid")
#: Models whose kernels `warm` compiles where none are named; those of other models are among them.
USUAL = ("lenet5", "resnet20", "rnn", "gru", "lstm")
#: What ranks share in `ranks`.
OVER = ("batch", "layers", "time", "linear")


def add_jacobians(parser: ArgumentParser) -> None:
    """--columns."""
    parser.add_argument(
        "--columns", type=cli.positive, default=200, metavar="N",
        help="Columns that autograd computes; their time is scaled to all columns.",
    )  # fmt: skip


def add_grid(parser: ArgumentParser) -> None:
    """--cells, --hidden, --batch, --steps, --inference."""
    cli.add_cells(parser, ["rnn", "gru", "lstm"])
    for option, meaning in (("hidden", "Hidden sizes H"), ("batch", "Batch sizes B"), ("steps", "Lengths T")):
        default = ",".join(map(str, GRID[option]))
        parser.add_argument(
            f"--{option}", type=cli.positive_list, metavar="N,N",
            help=f"{meaning} of the grid. Default: {default}; the first with --quick.",
        )  # fmt: skip
    parser.add_argument(
        "--inference", action="store_true", help="Time the forward pass alone, without gradients."
    )


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
    """--batch, --samples, --side, --dtype."""
    parser.add_argument(
        "--batch", type=cli.positive_list, default=[1, 16, 64], metavar="N,N", help="Batch sizes B of a call."
    )
    _add_samples(parser)
    parser.add_argument(
        "--side", type=cli.positive, metavar="N",
        help="Points on each side of the grid that the matrices belong to. Default: 129; 12 with --quick.",
    )  # fmt: skip
    parser.add_argument(
        "--dtype", choices=("float64", "float32"), default="float64", help="Dtype of the values."
    )


def add_spgemm(parser: ArgumentParser) -> None:
    """--batch-size, --samples, --model, --prune."""
    parser.add_argument(
        "--batch-size", type=cli.positive, metavar="B",
        help="Batch size of our products. Default: 16, 64 on a GPU; fewer where memory ends.",
    )  # fmt: skip
    _add_samples(parser)
    parser.add_argument("--model", default="vgg11", metavar="MODEL", help="Network of the up-sweep.")
    parser.add_argument(
        "--prune", type=cli.fraction, default=0.97, metavar="F", help="Share of the weights that is pruned."
    )


def _add_samples(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--samples", type=cli.positive, default=2, metavar="N",
        help="Samples of a batch that the rival multiplies, one after another.",
    )  # fmt: skip


def add_train(parser: ArgumentParser) -> None:
    """--model, --prune, --data, --batch-size, --dtype, --tolerance, --methods."""
    _add_model(parser, "lenet5")
    parser.add_argument(
        "--prune", type=cli.fraction, nargs="+", metavar="F", default=[0.0],
        help="Share of the weights of every layer that is pruned; several shares are measured in turn.",
    )  # fmt: skip
    parser.add_argument(
        "--data", metavar="PATH", help="Images, as bppsa-train reads them. Default: random images."
    )
    _add_batch_size(parser, 64)
    parser.add_argument(
        "--dtype", choices=("float32", "float64"), default="float32", help="Dtype of the network."
    )
    parser.add_argument(
        "--tolerance", type=cli.fraction, metavar="X",
        help="Relative difference to the rival's results that is allowed; many layers in float32 need more, "
        "where rounding turns an activation on or off. Default: 1e-4, or 1e-10 in float64.",
    )  # fmt: skip
    parser.add_argument(
        "--methods", nargs="+", choices=("bp", *SCHEDULES, "auto"), default=["auto"],
        help="Methods of the backward pass, measured in turn.",
    )  # fmt: skip


def add_steps(parser: ArgumentParser) -> None:
    """--kinds."""
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, default=list(KINDS),
        help="Cases to run: the paper's recurrent networks, image models, a grid of recurrent layers.",
    )  # fmt: skip


def add_ranks(parser: ArgumentParser) -> None:
    """--rank-count, --over, --model, --prune, --batch-size, --methods, --steps, --hidden-size."""
    _add_rank_count(parser)
    parser.add_argument(
        "--over", nargs="+", choices=OVER, default=list(OVER), help="What the ranks share, in turn."
    )
    _add_model(parser, "vgg11")
    parser.add_argument(
        "--prune", type=cli.fraction, metavar="F",
        help="Share of the weights of every layer that is pruned. Default: none.",
    )  # fmt: skip
    _add_batch_size(parser, 16)
    parser.add_argument(
        "--methods", nargs="+", choices=("bp", *SCHEDULES), default=["bp"],
        help="Methods of the backward pass over layers, measured in turn.",
    )  # fmt: skip
    parser.add_argument(
        "--steps", type=cli.positive, metavar="T",
        help="Length of the sequences. Default: 500, 5000 and 30000; 10⁶ of linear recurrences.",
    )  # fmt: skip
    parser.add_argument(
        "--hidden-size", type=cli.positive, metavar="H", help="Units of the RNN. Default: 20 and 64."
    )


def add_pipeline(parser: ArgumentParser) -> None:
    """--rank-count, --model, --ppv, --batch-size, --pipelines, --micro-batches, --batches."""
    _add_rank_count(parser)
    parser.add_argument(
        "--model", metavar="MODEL",
        help="Model, as bppsa-train accepts it. Default: lenet5 B=64, vgg16 B=16 and resnet20 B=32.",
    )  # fmt: skip
    cli.add_ppv(parser)
    parser.add_argument(
        "--batch-size", type=cli.positive, metavar="B", help="Batch size; requires --model. Default: 32."
    )
    parser.add_argument(
        "--pipelines", nargs="+", choices=PIPELINES, default=["stale"], help="Schedules, measured in turn."
    )
    parser.add_argument(
        "--micro-batches", type=cli.positive, default=4, metavar="M",
        help="Micro-batches of a batch, for schedules that have them.",
    )  # fmt: skip
    parser.add_argument(
        "--batches", type=cli.positive, metavar="N", help="Batches of a sample. Default: 20 to 100."
    )


def _add_rank_count(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--rank-count", type=cli.positive, default=2, metavar="P", help="Number of ranks to start."
    )


def _add_model(parser: ArgumentParser, default: str) -> None:
    parser.add_argument("--model", default=default, metavar="MODEL", help="Model, as bppsa-train accepts it.")


def _add_batch_size(parser: ArgumentParser, default: int) -> None:
    parser.add_argument("--batch-size", type=cli.positive, default=default, metavar="B", help="Batch size.")


def add_warm(parser: ArgumentParser) -> None:
    """MODEL … and --dtype."""
    parser.add_argument(
        "models", nargs="*", default=list(USUAL), metavar="MODEL",
        help=f"Models: {', '.join(MODELS)}, path/to/file.py:factory or module:factory.",
    )  # fmt: skip
    parser.add_argument(
        "--dtype", choices=("float32", "float64"), default="float32", help="Dtype of the networks."
    )
