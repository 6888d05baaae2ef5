"""Retraining of a pruned network (paper, section 4.3): training, pruning by magnitude, and retraining by
several backward passes, from the same weights on the same batches."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace

import numpy as np

from bppsa_cupy.data import load
from bppsa_cupy.models import build_model
from bppsa_cupy.network.prune import prune
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.reproduction.curves import (
    NOISE,
    compare,
    picture_path,
    print_comparison,
    rounding_noise,
    settings_of,
    train_by_us,
    write_figure,
)
from bppsa_cupy.tools.reproduction.torch_training import train_runs
from bppsa_cupy.training.loop import check_dataset, evaluate
from bppsa_cupy.training.optimizers import Adam

#: The backward passes that retrain; `hybrid` with products of matrices in so many up-sweep levels.
METHODS, LEVELS = ("bp", "auto", "hybrid"), 1


def run_prune(arguments: argparse.Namespace) -> None:
    """Train, prune, retrain, compare, and write prune.json and prune.png."""
    picture_path(arguments)
    dataset = load(arguments.data)
    if dataset.test is not None:
        test = dataset.test
        inputs, labels = (part[: arguments.test_samples] for part in (test.inputs, test.labels))
        dataset = replace(dataset, test=replace(test, inputs=inputs, labels=labels))
    options = cli.taken(arguments, "seed", "dtype", "device")
    network = build_model(arguments.model, dataset.input_shape, classes=dataset.classes, **options)
    check_dataset(network, dataset)
    network.load_state_dict(he_parameters(network, arguments.seed))
    first = settings_of(
        arguments, "iterations", "batch_size", "seed", method="bp", epochs=arguments.iterations
    )
    trained = train_by_us(network, dataset, first, Adam(network.parameters, lr=arguments.lr))
    accuracy = {"trained": trained.evaluations[-1][1] if trained.evaluations else None}
    masks = prune(network, arguments.prune, arguments.prune_scope)
    accuracy["pruned"] = None if dataset.test is None else evaluate(network, dataset.test, 100)[1]
    network.use(network.plan(levels=LEVELS, batch_size=arguments.batch_size))
    weights = network.state_dict()

    def build() -> Sequential:
        network.load_state_dict(weights)
        return network

    again = replace(first, epochs=arguments.retrain, iterations=arguments.retrain, seed=arguments.seed + 1)
    runs = {method: replace(again, method=method) for method in METHODS}
    runs[NOISE] = replace(again, gradient_hook=rounding_noise(arguments.seed, arguments.dtype))
    curves = train_runs(build, dataset, runs, Adam, lr=arguments.retrain_lr)
    title = f"{arguments.model} on {dataset.name}, {arguments.prune:.0%} pruned"
    comparison = compare(curves, "bp", "bp", arguments.dtype)
    print_comparison(title, comparison)
    shares = {name: 1 - float(mask.mean()) for name, mask in masks.items()}
    write_figure(
        arguments, network.device, {title: (curves, comparison)}, pruned=shares, accuracy=accuracy,
        training_losses=trained.losses,
    )  # fmt: skip


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
