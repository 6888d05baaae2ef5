"""Retraining of a pruned network (paper, section 4.3): training, pruning by magnitude, and retraining by
several backward passes, from the same weights on the same batches.

The yardstick of equal curves is `bp` against `bp` with noise of one unit in the last place on every gradient,
as in figure 6: training itself amplifies rounding errors.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.data import Dataset, load
from bppsa_cupy.models import build_model
from bppsa_cupy.network.prune import SCOPES, prune
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.figures import curves
from bppsa_cupy.tools.figures.curves import Losses
from bppsa_cupy.tools.figures.picture_file import picture
from bppsa_cupy.tools.figures.result_file import picture_path, write_result
from bppsa_cupy.training.loop import check_dataset, evaluate, train
from bppsa_cupy.training.optimizers import Adam
from bppsa_cupy.training.settings import Settings

#: The backward passes that retrain; `hybrid` with products of matrices in so many up-sweep levels.
METHODS = ("bp", "auto", "hybrid")
LEVELS = 1
NOISE = "bp with noise"

#: The options that the result follows from.
SETTINGS = (
    "model", "prune", "prune_scope", "iterations", "retrain", "batch_size", "lr", "retrain_lr",
    "test_samples", "seed", "dtype",
)  # fmt: skip

#: Steps a mean in the picture is taken over.
WINDOW = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bppsa-reproduce prune`."""
    parser.add_argument("--data", required=True, help="a folder of CIFAR-10's binary layout")
    parser.add_argument("--out", default="docs/results", help="folder of prune.json and prune.png")
    parser.add_argument("--model", default="vgg11", help="as bppsa-train takes it (default vgg11)")
    parser.add_argument("--prune", type=cli.fraction, default=0.97, metavar="F", help="default 0.97")
    parser.add_argument("--prune-scope", choices=SCOPES, default="layer")
    parser.add_argument("--iterations", type=cli.positive, default=300, help="of training (default 300)")
    parser.add_argument("--retrain", type=cli.positive, default=300, help="iterations after it (default 300)")
    parser.add_argument("--batch-size", type=cli.positive, default=32)
    parser.add_argument("--lr", type=float, default=3e-4, help="of Adam in training (default 3e-4)")
    parser.add_argument("--retrain-lr", type=float, default=1e-3, help="in retraining (default 1e-3)")
    parser.add_argument(
        "--test-samples", type=cli.positive, default=2000, help="for accuracies (default 2000)"
    )
    parser.add_argument("--seed", type=cli.not_negative, default=0)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--device", choices=("auto", "cuda", "host"), default="auto")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Train, prune, retrain, compare, and write prune.json and prune.png."""
    path = picture_path(arguments)
    dataset = _with_test_samples(load(arguments.data), arguments.test_samples)
    options = cli.taken(arguments, "seed", "dtype", "device")
    network = build_model(arguments.model, dataset.input_shape, classes=dataset.classes, **options)
    check_dataset(network, dataset)
    network.load_state_dict(he_parameters(network, arguments.seed))
    losses = {"training": _train(arguments, network, dataset)}
    accuracy = {"trained": _accuracy(network, dataset)}
    masks = prune(network, arguments.prune, arguments.prune_scope)
    accuracy["pruned"] = _accuracy(network, dataset)
    network.use(network.plan(levels=LEVELS, batch_size=arguments.batch_size))
    weights, ran = network.state_dict(), {}
    for label in (*METHODS, NOISE):
        network.load_state_dict(weights)
        losses[label] = _train(arguments, network, dataset, label)
        accuracy[label] = _accuracy(network, dataset)
        report = network.last_backward
        assert report is not None
        ran[label] = "; ".join([f"{report.method}, {report.reason}", *report.schedules])
    limit = 3 * curves.largest_difference(losses[NOISE], losses["bp"])
    comparison = curves.compare(losses, METHODS[1:], limit)
    facts = {
        "pruned": {name: 1 - float(mask.mean()) for name, mask in masks.items()},
        "backward": ran,
        "accuracy": accuracy,
        "comparison": comparison,
        "losses": losses,
    }
    write_result(arguments, network.device, SETTINGS, facts, indent=1)
    title = f"{arguments.model} on {dataset.name}, {arguments.prune:.0%} pruned"
    plot(losses, accuracy, limit, path, title)
    _print(accuracy, comparison, ran)


def _with_test_samples(dataset: Dataset, count: int) -> Dataset:
    """The data set with the first `count` of its test samples."""
    if dataset.test is None:
        return dataset
    test = dataclasses.replace(
        dataset.test, inputs=dataset.test.inputs[:count], labels=dataset.test.labels[:count]
    )
    return dataclasses.replace(dataset, test=test)


def he_parameters(network: Sequential, seed: int) -> dict[str, np.ndarray]:
    """Normal weights of variance 2 / fan-in and zero biases (He et al. 2015): deep networks without
    normalization hardly learn from PyTorch's defaults, which make the signal smaller at every layer."""
    generator = np.random.default_rng(seed)
    return {
        name: generator.standard_normal(array.shape) * math.sqrt(2 / math.prod(array.shape[1:]))
        if len(array.shape) > 1
        else np.zeros(array.shape)
        for name, array in network.parameters.items()
    }


def _train(
    arguments: argparse.Namespace, network: Sequential, dataset: Dataset, label: str | None = None
) -> list[float]:
    """The losses of training by Adam from the network's parameters on, or of the retraining `label`."""
    retraining = label is not None
    iterations = arguments.retrain if retraining else arguments.iterations
    settings = Settings(
        method=label if label in METHODS else "bp",
        epochs=iterations,
        iterations=iterations,
        batch_size=arguments.batch_size,
        seed=arguments.seed + retraining,
        progress=sys.stderr.isatty(),
        gradient_hook=curves.last_place_noise(arguments.seed) if label == NOISE else None,
    )
    optimizer = Adam(network.parameters, lr=arguments.retrain_lr if retraining else arguments.lr)
    history = train(network, dataclasses.replace(dataset, test=None), optimizer, settings)
    return [float(loss) for loss in history.losses]


def _accuracy(network: Sequential, dataset: Dataset) -> float | None:
    return None if dataset.test is None else evaluate(network, dataset.test, 100)[1]


def _print(accuracy: dict[str, Any], comparison: list[dict[str, Any]], ran: dict[str, str]) -> None:
    for label, value in accuracy.items():
        print(f"accuracy, {label}: {'no test samples' if value is None else f'{value:.2%}'}")
    for row in comparison:
        told = curves.verdict(row["difference"], row["limit"], row["agrees"])
        method = row["method"]
        print(f"{method}: largest relative difference of losses to bp {told}; ran {ran[method]}")


def plot(losses: Losses, accuracy: dict[str, float | None], limit: float, path: Path, title: str) -> None:
    """The losses of training and retraining, their differences to `bp`'s, and the accuracies."""
    options = {"figsize": (14, 4.2), "layout": "constrained", "width_ratios": (1.5, 1.2, 1)}
    with picture(path, 1, 3, save={"dpi": 120}, **options) as (figure, (left, middle, right)):
        figure.suptitle(title)
        start = len(losses["training"])
        left.plot(*_means(losses["training"], 0), color="0.4", label="training, dense")
        for label, width, color in (("bp", 4.5, "C0"), ("auto", 2.6, "C1"), ("hybrid", 1.0, "C2")):
            means = _means(losses[label], start)
            left.plot(*means, color=color, linewidth=width, label=f"retraining, {label}")
            if label != "bp":
                differences = curves.relative_differences(losses[label], losses["bp"])
                told = label if differences.any() else f"{label}: none"
                curves.draw_differences(middle, differences, "o", markersize=3, color=color, label=told)
        left.axvline(start, color="0.2", linestyle=":", linewidth=0.8)
        left.set(xlabel="step", ylabel=f"training loss, mean of {WINDOW} batches")
        left.legend()
        noise = curves.relative_differences(losses[NOISE], losses["bp"])
        style = {"markersize": 3, "color": "0.6", "label": "bp with noise of one ulp"}
        curves.draw_differences(middle, noise, ".", **style)
        curves.draw_limit(middle, limit)
        middle.set(
            xlabel="step of retraining", ylabel="relative difference of the loss to bp's", yscale="log"
        )
        middle.legend()
        shown = {
            label: 100 * value for label, value in accuracy.items() if value is not None and label != NOISE
        }
        if shown:
            bars = right.bar(list(shown), list(shown.values()), color=["0.4", "0.7", "C0", "C1", "C2"])
            right.bar_label(bars, fmt="%.1f")
        right.set(ylabel="test accuracy, %", title="trained, pruned, retrained by")


def _means(losses: list[float], start: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps and moving means; a run shorter than the window as it is."""
    window = min(WINDOW, len(losses))
    means = np.convolve(losses, np.full(window, 1 / window), mode="valid")
    return np.arange(start + window, start + len(losses) + 1), means
