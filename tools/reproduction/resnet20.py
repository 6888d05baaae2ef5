"""Training curves of a convolutional network by bppsa-cupy and by PyTorch, with the same rates, for several
seeds."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from bppsa_cupy.data import load
from bppsa_cupy.models import build_model
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools.reproduction.curves import (
    NOISE,
    PYTORCH,
    compare,
    picture_path,
    print_comparison,
    rounding_noise,
    settings_of,
    write_figure,
)
from bppsa_cupy.tools.reproduction.torch_training import train_runs
from bppsa_cupy.training.loop import check_dataset
from bppsa_cupy.training.optimizers import SGD

OURS = "bppsa-cupy"


def run_resnet20(arguments: argparse.Namespace) -> None:
    """Train by both, compare, and write MODEL.json and MODEL.png, again after each seed."""
    arguments.figure = Path(arguments.model.rpartition(":")[2]).name
    picture_path(arguments)
    dataset, results = load(arguments.data), {}
    names = "epochs", "iterations", "batch_size", "lr_schedule", "augment"
    for seed in range(arguments.seeds):

        def build(seed: int = seed) -> Sequential:
            options = {"seed": seed, "dtype": arguments.dtype, "device": arguments.device}
            return build_model(arguments.model, dataset.input_shape, classes=dataset.classes, **options)

        network = build()
        check_dataset(network, dataset)
        settings = settings_of(arguments, *names, method="bp", seed=seed)
        noise = rounding_noise(seed, arguments.dtype)
        runs = {PYTORCH: settings, OURS: settings, NOISE: replace(settings, gradient_hook=noise)}
        threads = arguments.threads or network.device.workers
        # Of SGD, as He et al. (2016) have them.
        options = {"lr": arguments.lr, "momentum": 0.9, "weight_decay": 1e-4}
        curves = train_runs(build, dataset, runs, SGD, threads, **options)
        title = f"{arguments.model} on {dataset.name}, {arguments.dtype}, seed {seed}"
        results[title] = curves, compare(curves, PYTORCH, OURS, arguments.dtype)
        print_comparison(title, results[title][1])
        write_figure(arguments, network.device, results)
