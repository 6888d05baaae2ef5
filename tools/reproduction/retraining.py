"""Retraining of a pruned network (paper, section 4.3): training, pruning by magnitude, and retraining by
several backward passes, from the same weights on the same batches."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.data import Dataset, load
from bppsa_cupy.models import build_model
from bppsa_cupy.network.prune import SCOPES, prune
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.pictures.picture_file import picture
from bppsa_cupy.tools.reproduction.curves import (
    Losses,
    compare,
    in_words,
    last_place_noise,
    relative_differences,
    train_by_us,
)
from bppsa_cupy.tools.reproduction.drawings import draw_differences, draw_limit, draw_means, finish
from bppsa_cupy.tools.reproduction.result_file import add_options, picture_path, write_result
from bppsa_cupy.training.loop import check_dataset, evaluate
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
    parser.add_argument("--model", default="vgg11", help="as bppsa-train takes it (default vgg11)")
    parser.add_argument("--prune", type=cli.fraction, default=0.97, metavar="F", help="default 0.97")
    parser.add_argument("--prune-scope", choices=SCOPES, default="layer")
    add_options(
        parser,
        iterations=300,
        retrain=300,
        batch_size=32,
        lr=3e-4,
        retrain_lr=1e-3,
        test_samples=2000,
        seed=0,
    )
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")


def run(arguments: argparse.Namespace) -> None:
    """Train, prune, retrain, compare, and write prune.json and prune.png."""
    path = picture_path(arguments)
    dataset = load(arguments.data)
    if dataset.test is not None:
        inputs, labels = (
            part[: arguments.test_samples] for part in (dataset.test.inputs, dataset.test.labels)
        )
        dataset = replace(dataset, test=replace(dataset.test, inputs=inputs, labels=labels))
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
    comparison = compare(losses, METHODS[1:], [NOISE], len(network.layers), arguments.dtype)
    facts = {
        "pruned": {name: 1 - float(mask.mean()) for name, mask in masks.items()},
        "backward": ran,
        "accuracy": accuracy,
        "comparison": comparison,
        "losses": losses,
    }
    write_result(arguments, network.device, SETTINGS, facts, indent=1)
    title = f"{arguments.model} on {dataset.name}, {arguments.prune:.0%} pruned"
    plot(losses, accuracy, comparison[0], path, title)
    for label, value in accuracy.items():
        print(f"accuracy, {label}: {'no test samples' if value is None else f'{value:.2%}'}")
    for row in comparison:
        method = row["method"]
        print(f"{method}: largest relative difference of losses to bp {in_words(row)}; ran {ran[method]}")


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
        gradient_hook=last_place_noise(arguments.seed) if label == NOISE else None,
    )
    optimizer = Adam(network.parameters, lr=arguments.retrain_lr if retraining else arguments.lr)
    return train_by_us(network, replace(dataset, test=None), settings, optimizer).losses


def _accuracy(network: Sequential, dataset: Dataset) -> float | None:
    return None if dataset.test is None else evaluate(network, dataset.test, 100)[1]


def plot(
    losses: Losses, accuracy: dict[str, float | None], compared: dict[str, Any], path: Path, title: str
) -> None:
    """The losses of training and retraining, their differences to `bp`'s, and the accuracies."""
    options = {"figsize": (14, 4.2), "layout": "constrained", "width_ratios": (1.5, 1.2, 1)}
    with picture(path, 1, 3, save={"dpi": 120}, **options) as (figure, axes):
        left, middle, right = axes
        figure.suptitle(title)
        start = len(losses["training"])
        draw_means(left, losses["training"], WINDOW, color="0.4", label="training, dense")
        for label, width, color in (("bp", 4.5, "C0"), ("auto", 2.6, "C1"), ("hybrid", 1.0, "C2")):
            draw_means(
                left, losses[label], WINDOW, start=start, color=color, linewidth=width,
                label=f"retraining, {label}",
            )  # fmt: skip
            if label != "bp":
                differences = relative_differences(losses[label], losses["bp"])
                told = label if differences.any() else f"{label}: none"
                draw_differences(middle, differences, "o", color=color, label=told)
        left.axvline(start, color="0.2", linestyle=":", linewidth=0.8)
        left.set(xlabel="step", ylabel=f"training loss, mean of {WINDOW} batches")
        noise = relative_differences(losses[NOISE], losses["bp"])
        draw_differences(middle, noise, color="0.6", label="bp with noise of one ulp")
        draw_limit(middle, compared["limit"], compared["steps"])
        middle.set(
            xlabel="step of retraining", ylabel="relative difference of the loss to bp's", yscale="log"
        )
        finish((left, middle))
        shown = {
            label: 100 * value for label, value in accuracy.items() if value is not None and label != NOISE
        }
        if shown:
            bars = right.bar(list(shown), list(shown.values()), color=["0.4", "0.7", "C0", "C1", "C2"])
            right.bar_label(bars, fmt="%.1f")
        right.set(ylabel="test accuracy, %", title="trained, pruned, retrained by")
