"""Figure 6: training LeNet-5 by every backward method, from the same seed on the same batches."""

from __future__ import annotations

import argparse
from dataclasses import replace

from bppsa_cupy.data import load
from bppsa_cupy.devices import get_device
from bppsa_cupy.models import lenet5
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan import SCHEDULES
from bppsa_cupy.tools.reproduction.curves import (
    NOISE,
    compare,
    picture_path,
    print_comparison,
    rounding_noise,
    settings_of,
    write_figure,
)
from bppsa_cupy.tools.reproduction.torch_training import train_runs
from bppsa_cupy.training.optimizers import SGD

#: Up-sweep levels of the hybrid schedule: more than `linear` has, fewer than `blelloch`.
LEVELS = 1


def run_figure6(arguments: argparse.Namespace) -> None:
    """Train by every method in both dtypes, compare, and write figure6.json and figure6.png."""
    picture_path(arguments)
    dataset, results = replace(load(arguments.data), test=None), {}
    for dtype in ("float64", "float32"):
        names = "iterations", "batch_size", "seed"
        bp = settings_of(arguments, *names, method="bp", epochs=arguments.iterations)
        runs = {"bp": bp, **{method: replace(bp, method=method) for method in SCHEDULES}}
        if dtype == "float32":
            runs |= {
                f"{NOISE} {seed}": replace(bp, gradient_hook=rounding_noise(seed, dtype)) for seed in (1, 2)
            }

        def build(dtype: str = dtype) -> Sequential:
            options = {"seed": arguments.seed, "device": arguments.device, "dtype": dtype}
            network = lenet5(dataset.input_shape, dataset.classes, **options)
            network.use(network.plan(levels=LEVELS, batch_size=arguments.batch_size))
            return network

        options = {"lr": arguments.lr, "momentum": arguments.momentum}
        curves = train_runs(build, dataset, runs, SGD, **options)
        title = f"LeNet-5 on {dataset.name}, {dtype}"
        results[title] = curves, compare(curves, "bp", "bp", dtype)
        print_comparison(title, results[title][1])
    write_figure(arguments, get_device(arguments.device), results, levels=LEVELS)
