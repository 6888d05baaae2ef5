"""Figures 7 and 13: training an RNN on bitstreams and a GRU on features of audio, by bppsa-cupy and by
PyTorch.

The noise is as large as the rounding of a sum over all steps of a batch. The paper trains the RNN with a
learning rate of 1e-5 for 80 epochs of 2,000 steps; a larger one shows the same in less time.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bppsa_cupy.data import Dataset, load
from bppsa_cupy.devices import get_device
from bppsa_cupy.models import build_model
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools.reproduction.curves import (
    NOISE,
    PYTORCH,
    Curve,
    compare,
    picture_path,
    print_comparison,
    rounding_noise,
    settings_of,
    write_figure,
)
from bppsa_cupy.tools.reproduction.torch_training import train_runs
from bppsa_cupy.training.optimizers import Adam

#: Methods of the backward pass: the serial one on a host, and the scan over chunks of steps.
METHODS = ("auto", "blelloch")


def run_figure7(arguments: argparse.Namespace) -> None:
    """Train an RNN in both dtypes, compare, and write figure7.json and figure7.png."""
    _run(arguments, "rnn", [Path(arguments.data)])


def run_figure13(arguments: argparse.Namespace) -> None:
    """Train a GRU on each file in both dtypes, compare, and write figure13.json and figure13.png."""
    _run(arguments, "gru", [Path(file) for file in arguments.data])


def _run(arguments: argparse.Namespace, model: str, paths: Sequence[Path]) -> None:
    picture_path(arguments)
    results = {}
    for dataset in map(load, paths):
        for dtype in ("float64", "float32"):
            curves = train_all(arguments, dataset, model, dtype)
            title = f"{model.upper()} on {dataset.name}, {dtype}"
            results[title] = curves, compare(curves, PYTORCH, METHODS[0], dtype)
            print_comparison(title, results[title][1])
    write_figure(arguments, get_device(arguments.device), results)


def train_all(arguments: argparse.Namespace, dataset: Dataset, model: str, dtype: str) -> dict[str, Curve]:
    """Curves by run: PyTorch, each of METHODS, and two under noise."""

    def build() -> Sequential:
        options = {"seed": arguments.seed, "device": arguments.device, "dtype": dtype}
        network = build_model(model, dataset.input_shape, classes=dataset.classes, **options)
        network.use(network.plan(batch_size=arguments.batch_size))
        return network

    settings = settings_of(arguments, "epochs", "iterations", "batch_size", "seed", "clip")
    runs = {PYTORCH: settings, **{method: replace(settings, method=method) for method in METHODS}}
    ulps = np.sqrt(dataset.input_shape[0] * arguments.batch_size)
    for seed in (1, 2):
        noise = rounding_noise(seed, dtype, ulps)
        runs[f"{NOISE} {seed}"] = replace(settings, method=METHODS[0], gradient_hook=noise)
    return train_runs(build, dataset, runs, Adam, arguments.threads, lr=arguments.lr)
