"""Figure 6: training LeNet-5 by every backward method, from the same seed on the same batches.

In float64 the curves must agree to rounding that grows with the steps. In float32 rounding errors are
amplified by training itself, so the yardstick is `bp` against `bp` with noise of one unit in the last
place on every gradient.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tqdm import tqdm

from bppsa_cupy.data import Dataset, load
from bppsa_cupy.devices import get_device
from bppsa_cupy.models import lenet5
from bppsa_cupy.plan import SCHEDULES, Plan
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.figures import curves
from bppsa_cupy.tools.figures.curves import Losses
from bppsa_cupy.tools.figures.picture_file import picture
from bppsa_cupy.tools.figures.result_file import picture_path, write_result
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.optimizers import SGD
from bppsa_cupy.training.settings import Settings

#: The options that the result follows from.
SETTINGS = ("iterations", "batch_size", "lr", "momentum", "seed")
#: Up-sweep levels of the hybrid schedule: more than `linear` has, fewer than `blelloch`.
LEVELS = 1
#: Runs of `bp` under noise, each with its own seed; the yardstick is the largest divergence of them.
NOISE_SEEDS = (1, 2, 3)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bppsa-reproduce figure6`."""
    parser.add_argument("--data", required=True, help="a folder of CIFAR-10's binary layout")
    parser.add_argument("--iterations", type=cli.positive, default=200)
    parser.add_argument("--batch-size", type=cli.positive, default=64)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=cli.not_negative, default=0)


def run(arguments: argparse.Namespace) -> None:
    """Train by every method in both dtypes, compare, and write figure6.json and figure6.png."""
    dataset = load(arguments.data)
    device = get_device(arguments.device)
    losses = {dtype: _curves(arguments, dataset, dtype) for dtype in ("float64", "float32")}
    comparison = compare_all(losses)
    path, facts = picture_path(arguments), {"comparison": comparison, "losses": losses}
    write_result(arguments, device, SETTINGS, facts, given={"levels": LEVELS}, indent=1)
    plot(losses, comparison, path)
    for row in comparison:
        told = curves.verdict(row["difference"], row["limit"], row["agrees"])
        print(f"{row['dtype']} {row['method']:9s} largest relative difference to bp {told}")


def labels(dtype: str) -> list[str]:
    """The runs of a dtype: a method each, and `bp` under noise ("noise 1") in float32."""
    noisy = [f"noise {seed}" for seed in NOISE_SEEDS] if dtype == "float32" else []
    return ["bp", *SCHEDULES, *noisy]


def _curves(arguments: argparse.Namespace, dataset: Dataset, dtype: str) -> Losses:
    """Losses by run."""
    plan = lenet5(dataset.input_shape, dataset.classes, dtype=dtype, device=arguments.device).plan(
        levels=LEVELS, batch_size=arguments.batch_size
    )
    options = cli.taken(arguments, *SETTINGS, "device")
    return {
        label: train_run(dataset, dtype, label, plan=plan, **options)
        for label in tqdm(labels(dtype), desc=dtype, disable=None)
    }


def train_run(
    dataset: Dataset, dtype: str, label: str, *, iterations: int, batch_size: int, lr: float, momentum: float,
    seed: int, device: str, plan: Plan | None = None,
) -> list[float]:  # fmt: skip
    """The losses of one of `labels`.

    plan  of the methods that scan; made where it is not given
    """
    network = lenet5(dataset.input_shape, dataset.classes, seed=seed, device=device, dtype=dtype)
    method, hook = label, None
    if label.startswith("noise"):
        method, hook = "bp", curves.last_place_noise(int(label.removeprefix("noise ")))
    if method != "bp":
        network.use(plan or network.plan(levels=LEVELS, batch_size=batch_size))
    settings = Settings(
        method=method, epochs=iterations, iterations=iterations, batch_size=batch_size, seed=seed,
        gradient_hook=hook,
    )  # fmt: skip
    history = train(network, dataset, SGD(network.parameters, lr=lr, momentum=momentum), settings)
    assert network.last_backward is not None and network.last_backward.method == method
    return history.losses.tolist()


def compare_all(by_dtype: dict[str, Losses]) -> list[dict[str, Any]]:
    """Each scan's largest relative difference to `bp` over the steps, and the limit it is held to."""
    rows = []
    for dtype, losses in by_dtype.items():
        noise = [
            curves.largest_difference(losses[run], losses["bp"]) for run in losses if run.startswith("noise")
        ]
        limit = 3 * max(noise) if noise else 1e-8
        rows += [{"dtype": dtype, **row} for row in curves.compare(losses, SCHEDULES, limit)]
    return rows


def plot(by_dtype: dict[str, Losses], comparison: list[dict[str, Any]], path: Path) -> None:
    """The curves over each other, and below them their differences to `bp`."""
    options = {"figsize": (11, 7), "layout": "constrained", "sharex": True}
    widths = {"bp": 5.0, "linear": 3.2, "blelloch": 1.8, "hybrid": 0.7}
    with picture(path, 2, 2, save={"dpi": 130}, **options) as (_, axes):
        for (upper, lower), (dtype, by_run) in zip(axes.T, by_dtype.items(), strict=True):
            lower.set(yscale="log", ylim=(1e-17, 1))
            for run, losses in by_run.items():
                differences = curves.relative_differences(losses, by_run["bp"])
                if run.startswith("noise"):
                    label = "bp with noise of one ulp" if run == f"noise {NOISE_SEEDS[0]}" else None
                    curves.draw_differences(lower, differences, ".", color="0.6", markersize=3, label=label)
                    continue
                (line,) = upper.plot(range(1, len(losses) + 1), losses, linewidth=widths[run], label=run)
                if run != "bp":
                    style = {"color": line.get_color(), "fillstyle": "none", "markersize": 2 * widths[run]}
                    curves.draw_differences(lower, differences, "o", label=run, **style)
            curves.draw_limit(lower, next(row["limit"] for row in comparison if row["dtype"] == dtype))
            upper.set(title=f"LeNet-5 on CIFAR-10, {dtype}", ylabel="training loss, a batch")
            lower.set(xlabel="iteration", ylabel="relative difference to bp, where not 0")
            upper.legend()
            lower.legend(loc="best")
