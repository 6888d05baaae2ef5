"""Figure 6: training LeNet-5 by every backward method, from the same seed on the same batches."""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from typing import Any

from tqdm import tqdm

from bppsa_cupy.data import Dataset, load
from bppsa_cupy.devices import get_device
from bppsa_cupy.models import lenet5
from bppsa_cupy.plan import SCHEDULES, Plan
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
from bppsa_cupy.tools.reproduction.drawings import BY_METHOD, draw_differences, draw_limit, draw_means, finish
from bppsa_cupy.tools.reproduction.result_file import add_options, picture_path, write_result
from bppsa_cupy.training.optimizers import SGD
from bppsa_cupy.training.settings import Settings

#: The options that the result follows from.
SETTINGS = ("iterations", "batch_size", "lr", "momentum", "seed")
#: Up-sweep levels of the hybrid schedule: more than `linear` has, fewer than `blelloch`.
LEVELS = 1
#: Runs of `bp` in float32 under noise of one unit in the last place of every gradient.
NOISY = tuple(f"noise {seed}" for seed in (1, 2, 3))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bppsa-reproduce figure6`."""
    parser.add_argument("--data", required=True, help="a folder of CIFAR-10's binary layout")
    add_options(parser, iterations=200, batch_size=64, lr=0.001, momentum=0.9, seed=0)


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
        print(f"{row['dtype']} {row['method']:9s} largest relative difference to bp {in_words(row)}")


def labels(dtype: str) -> list[str]:
    """The runs of a dtype."""
    return ["bp", *SCHEDULES, *(NOISY if dtype == "float32" else ())]


def _curves(arguments: argparse.Namespace, dataset: Dataset, dtype: str) -> Losses:
    network = lenet5(dataset.input_shape, dataset.classes, dtype=dtype, device=arguments.device)
    plan = network.plan(levels=LEVELS, batch_size=arguments.batch_size)
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
    method = "bp" if label in NOISY else label
    if method != "bp":
        network.use(plan or network.plan(levels=LEVELS, batch_size=batch_size))
    settings = Settings(
        method=method, epochs=iterations, iterations=iterations, batch_size=batch_size, seed=seed,
        gradient_hook=last_place_noise(int(label.split()[1])) if label in NOISY else None,
    )  # fmt: skip
    losses = train_by_us(network, dataset, settings, SGD(network.parameters, lr=lr, momentum=momentum)).losses
    assert network.last_backward is not None and network.last_backward.method == method
    return losses


@cache
def _layers() -> int:
    return len(lenet5(device="host").layers)


def compare_all(by_dtype: dict[str, Losses]) -> list[dict[str, Any]]:
    """Each scan's losses beside those of `bp`, as `compare` has them."""
    return [
        {"dtype": dtype, **row}
        for dtype, losses in by_dtype.items()
        for row in compare(losses, SCHEDULES, [run for run in NOISY if run in losses], _layers(), dtype)
    ]


def plot(by_dtype: dict[str, Losses], comparison: list[dict[str, Any]], path: Path) -> None:
    """The curves over each other, and below them their differences to `bp`."""
    options = {"figsize": (11, 7), "layout": "constrained", "sharex": True}
    with picture(path, 2, 2, save={"dpi": 130}, **options) as (_, axes):
        for (upper, lower), (dtype, by_run) in zip(axes.T, by_dtype.items(), strict=True):
            lower.set(yscale="log", ylim=(1e-17, 1))
            for run in [run for run in NOISY if run in by_run]:
                label = "bp with noise of one ulp" if run == NOISY[0] else None
                differences = relative_differences(by_run[run], by_run["bp"])
                draw_differences(lower, differences, color="0.6", label=label)
            for run, (color, width) in BY_METHOD.items():
                draw_means(upper, by_run[run], 1, color=color, linewidth=width, label=run)
                style = {"color": color, "fillstyle": "none", "markersize": 2 * width}
                apart = relative_differences(by_run[run], by_run["bp"])
                draw_differences(lower, apart, "o", label=None if run == "bp" else run, **style)
            row = next(row for row in comparison if row["dtype"] == dtype)
            draw_limit(lower, row["limit"], row["steps"])
            upper.set(title=f"LeNet-5 on CIFAR-10, {dtype}", ylabel="training loss, a batch")
            lower.set(xlabel="iteration", ylabel="relative difference to bp, where not 0")
        finish(axes.flat)
