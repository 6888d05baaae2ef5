"""Figure 6: training LeNet-5 by every backward method, from the same seed on the same batches.

In float64 the curves must agree to rounding that grows with the steps. In float32 rounding errors are
amplified by training itself, so the yardstick is `bp` against `bp` with noise of one unit in the last
place on every gradient.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from bppsa_cupy.data import Dataset, load
from bppsa_cupy.devices import get_device
from bppsa_cupy.models import lenet5
from bppsa_cupy.network.backward import METHODS
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan import Plan
from bppsa_cupy.system.files import write_text
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks.machine import describe_machine, versions
from bppsa_cupy.tools.figures.curves import import_pyplot
from bppsa_cupy.tools.figures.picture_file import save_figure
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.optimizers import SGD
from bppsa_cupy.training.settings import Settings

SCANS = tuple(method for method in METHODS if method not in ("auto", "bp"))
#: Up-sweep levels of the hybrid schedule: more than `linear` has, fewer than `blelloch`.
LEVELS = 1
#: Runs of `bp` under noise, each with its own seed; the yardstick is the largest divergence of them.
NOISE_SEEDS = (1, 2, 3)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bppsa-reproduce figure6`."""
    parser.add_argument("--data", required=True, help="a folder of CIFAR-10's binary layout")
    parser.add_argument("--out", default="docs/results", help="folder of figure6.json and figure6.png")
    parser.add_argument("--iterations", type=cli.positive, default=200)
    parser.add_argument("--batch-size", type=cli.positive, default=64)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=cli.not_negative, default=0)
    parser.add_argument("--device", choices=("auto", "cuda", "host"), default="auto")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Train by every method in both dtypes, compare, and write figure6.json and figure6.png."""
    dataset = load(arguments.data)
    device = get_device(arguments.device)
    curves: dict[str, dict[str, list[float]]] = {}
    for dtype in ("float64", "float32"):
        curves[dtype] = _curves(arguments, dataset, dtype)
    comparison = compare(curves)
    result = {
        "name": "figure6",
        "command": arguments.command,
        "settings": {
            name: getattr(arguments, name) for name in ("iterations", "batch_size", "lr", "momentum", "seed")
        },
        "levels": LEVELS,
        "device": device.name,
        "machine": describe_machine(device, device.workers),
        "versions": versions(device),
        "comparison": comparison,
        "losses": curves,
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_text(arguments.out / "figure6.json", json.dumps(result, indent=1) + "\n")
    plot(curves, comparison, arguments.out / "figure6.png")
    for row in comparison:
        print(
            f"{row['dtype']} {row['method']:9s} largest relative difference to bp {row['difference']:.2e}"
            f" (limit {row['limit']:.2e}): {'agrees' if row['agrees'] else 'DIFFERS'}"
        )


def _curves(arguments: argparse.Namespace, dataset: Dataset, dtype: str) -> dict[str, list[float]]:
    """Losses by method, and by noise run ("noise 1") in float32."""
    plan: Plan | None = None
    result = {}
    runs: list[tuple[str, str, Callable[[Sequential], None] | None]] = [
        (method, method, None) for method in ("bp", *SCANS)
    ]
    if dtype == "float32":
        runs += [(f"noise {seed}", "bp", last_place_noise(seed)) for seed in NOISE_SEEDS]
    for label, method, hook in tqdm(runs, desc=dtype, disable=None):
        network = lenet5(
            dataset.input_shape, dataset.classes, seed=arguments.seed, dtype=dtype, device=arguments.device
        )
        if method != "bp":
            plan = plan or network.plan(levels=LEVELS, batch_size=arguments.batch_size)
            network.use(plan)
        settings = Settings(
            method=method,
            epochs=arguments.iterations,
            iterations=arguments.iterations,
            batch_size=arguments.batch_size,
            seed=arguments.seed,
            gradient_hook=hook,
        )
        optimizer = SGD(network.parameters, lr=arguments.lr, momentum=arguments.momentum)
        history = train(network, dataset, optimizer, settings)
        assert network.last_backward is not None and network.last_backward.method == method
        result[label] = [float(loss) for loss in history.losses]
    return result


def last_place_noise(seed: int) -> Callable[[Sequential], None]:
    """A gradient hook that moves every gradient element by one unit in the last place, up or down."""
    generator = np.random.default_rng(seed)

    def hook(network: Sequential) -> None:
        flat = network.gradients.flat
        values = network.device.to_host(flat)
        direction = np.where(generator.integers(0, 2, values.shape, dtype=np.int8), np.inf, -np.inf)
        moved = np.nextafter(values, direction.astype(values.dtype))
        flat[...] = network.device.asarray(np.where(values == 0, values, moved))

    return hook


def compare(curves: dict[str, dict[str, list[float]]]) -> list[dict[str, Any]]:
    """Each scan's largest relative difference to `bp` over the steps, and the limit it is held to."""
    rows = []
    for dtype, by_run in curves.items():
        noise = [
            _difference(by_run["bp"], losses) for run, losses in by_run.items() if run.startswith("noise")
        ]
        limit = 3 * max(noise) if noise else 1e-8
        for method in SCANS:
            difference = _difference(by_run["bp"], by_run[method])
            rows.append(
                {
                    "dtype": dtype,
                    "method": method,
                    "difference": difference,
                    "limit": limit,
                    "agrees": difference <= limit,
                }
            )
    return rows


def _difference(reference: list[float], losses: list[float]) -> float:
    ours, theirs = np.array(losses), np.array(reference)
    return float((np.abs(ours - theirs) / np.abs(theirs)).max())


def plot(curves: dict[str, dict[str, list[float]]], comparison: list[dict[str, Any]], path: Path) -> None:
    """The curves over each other, and below them their differences to `bp`."""
    pyplot = import_pyplot()
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 7), layout="constrained", sharex=True)
    widths = {"bp": 5.0, "linear": 3.2, "blelloch": 1.8, "hybrid": 0.7}
    for column, (dtype, by_run) in enumerate(curves.items()):
        upper, lower = axes[0, column], axes[1, column]
        lower.set(yscale="log", ylim=(1e-17, 1))
        reference = np.array(by_run["bp"])
        steps = np.arange(1, len(reference) + 1)
        for run, losses in by_run.items():
            difference = np.abs(np.array(losses) - reference) / reference
            seen = difference > 0
            if run.startswith("noise"):
                label = "bp with noise of one ulp" if run == f"noise {NOISE_SEEDS[0]}" else None
                lower.plot(steps[seen], difference[seen], ".", color="0.6", markersize=3, label=label)
                continue
            (line,) = upper.plot(steps, losses, linewidth=widths[run], label=run)
            if run != "bp":
                lower.plot(
                    steps[seen],
                    difference[seen],
                    "o",
                    fillstyle="none",
                    markersize=2 * widths[run],
                    color=line.get_color(),
                    label=run,
                )
        limit = next(row["limit"] for row in comparison if row["dtype"] == dtype)
        lower.axhline(limit, color="0.2", linestyle="--", linewidth=0.8, label=f"limit {limit:.1e}")
        upper.set(title=f"LeNet-5 on CIFAR-10, {dtype}", ylabel="training loss, a batch")
        lower.set(xlabel="iteration", ylabel="relative difference to bp, where not 0")
        upper.legend()
        lower.legend(loc="best")
    save_figure(figure, path, dpi=130)
    pyplot.close(figure)
