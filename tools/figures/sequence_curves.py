"""Training curves of a recurrent network by our backward passes and by PyTorch, and how close they lie.

Training amplifies rounding errors, so the yardstick is our own curve against itself with noise on every
gradient element, as large as the rounding of a sum over all steps of a batch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.data import Dataset, load
from bppsa_cupy.devices import get_device
from bppsa_cupy.models import build_model
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.figures.curves import (
    draw_differences,
    draw_limit,
    largest_difference,
    relative_differences,
    rounding_noise,
    verdict,
)
from bppsa_cupy.tools.figures.picture_file import picture
from bppsa_cupy.tools.figures.result_file import picture_path
from bppsa_cupy.tools.figures.torch_training import (
    PYTORCH,
    TEST_BATCH,
    Curve,
    import_torch,
    train_by_torch,
)
from bppsa_cupy.training.loop import evaluate, train
from bppsa_cupy.training.optimizers import Adam
from bppsa_cupy.training.settings import Settings

#: The options that the curves follow from.
SETTINGS = ("epochs", "iterations", "batch_size", "lr", "clip", "seed", "threads")
#: Methods of the backward pass: what the cost model takes, and the scan over chunks of steps.
METHODS = ("auto", "blelloch")
#: Runs under noise, each with its own seed; the yardstick is the largest divergence of them.
NOISE_SEEDS = (1, 2)
#: Steps from one time that is written down to the next, and those that a smoothed curve is a mean of.
STRIDE = 20


def add_options(parser: argparse.ArgumentParser, *, epochs: int, lr: float) -> None:
    """How to train."""
    parser.add_argument("--epochs", type=cli.positive, default=epochs, help=f"(default {epochs})")
    parser.add_argument("--iterations", type=cli.positive, help="stop after so many steps in all")
    parser.add_argument("--batch-size", type=cli.positive, default=16, help="(default 16)")
    parser.add_argument("--lr", type=float, default=lr, help=f"learning rate of Adam (default {lr})")
    parser.add_argument("--clip", type=float, default=1.0, help="largest norm of the gradients (default 1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=cli.positive, default=1, help="of PyTorch on the host (default 1)")


@contextmanager
def trained(
    arguments: argparse.Namespace, model: str, paths: Sequence[Path]
) -> Iterator[Iterator[tuple[Dataset, str, dict[str, Curve], dict[str, Any]]]]:
    """Data set, dtype, curves and comparison of the training on each file in both dtypes, one after another.

    Each is a row of the figure's picture, which is written at the block's end.
    """
    import_torch()
    get_device(arguments.device)
    path = picture_path(arguments)
    arguments.progress = sys.stderr.isatty()
    cases = [(load(file), dtype) for file in paths for dtype in ("float64", "float32")]
    options = {"figsize": (14, 3.5 * len(cases)), "layout": "constrained", "squeeze": False}
    with picture(path, len(cases), 3, save={"dpi": 110}, **options) as (_, axes):

        def each() -> Iterator[tuple[Dataset, str, dict[str, Curve], dict[str, Any]]]:
            for row, (dataset, dtype) in zip(axes, cases, strict=True):
                curves, comparison = train_all(arguments, dataset, model, dtype)
                draw(row, curves, comparison, f"{model.upper()} on {dataset.name}, {dtype}")
                yield dataset, dtype, curves, comparison

        yield each()


def train_all(
    arguments: argparse.Namespace, dataset: Dataset, model: str, dtype: str
) -> tuple[dict[str, Curve], dict[str, Any]]:
    """Curves by run (each of METHODS, PyTorch, "noise 1" …), and how the methods compare with it."""

    def build() -> Sequential:
        options = {**cli.taken(arguments, "seed", "device"), "dtype": dtype}
        network = build_model(model, dataset.input_shape, classes=dataset.classes, **options)
        network.use(network.plan(batch_size=arguments.batch_size))
        return network

    settings = Settings(
        **cli.taken(arguments, "epochs", "iterations", "batch_size", "seed", "clip", "progress")
    )
    once = replace(settings, iterations=1, progress=False)
    curves = {}
    for method in METHODS:
        # The first step compiles kernels; it is made on a network of its own.
        train_by_scan(build(), dataset, replace(once, method=method), arguments.lr)
        curves[method] = train_by_scan(build(), dataset, replace(settings, method=method), arguments.lr)
    by_adam = {"optimizer": Adam, **cli.taken(arguments, "lr", "threads")}
    train_by_torch(build(), dataset, once, **by_adam)
    curves[PYTORCH] = train_by_torch(build(), dataset, settings, **by_adam)
    terms = dataset.input_shape[0] * arguments.batch_size
    for seed in NOISE_SEEDS:
        noise = rounding_noise(seed, np.sqrt(terms), dtype)
        noisy = replace(settings, method=METHODS[0], gradient_hook=noise)
        curves[f"noise {seed}"] = train_by_scan(build(), dataset, noisy, arguments.lr)
    return curves, compare(curves, dtype)


def train_by_scan(network: Sequential, dataset: Dataset, settings: Settings, lr: float) -> Curve:
    """Train `network` by Adam; the seconds hold no evaluation."""
    seconds: list[float] = []
    hook = settings.gradient_hook

    def timed(network: Sequential) -> None:
        seconds.append(time.perf_counter() - started)
        if hook is not None:
            hook(network)

    optimizer = Adam(network.parameters, lr=lr)
    started = time.perf_counter()
    history = train(network, replace(dataset, test=None), optimizer, replace(settings, gradient_hook=timed))
    assert network.last_backward is not None
    ran = network.last_backward.backward_ways
    tested = [] if dataset.test is None else [evaluate(network, dataset.test, TEST_BATCH)]
    return Curve(history.losses.tolist(), seconds, tested, backward=ran)


def compare(curves: dict[str, Curve], dtype: str) -> dict[str, Any]:
    """Each method's largest relative difference to PyTorch over the steps, the limit it is held to, and the
    ratio of PyTorch's seconds to its."""
    noise = [
        largest_difference(curve.losses, curves[METHODS[0]].losses)
        for run, curve in curves.items()
        if run.startswith("noise")
    ]
    limit = max(3 * max(noise), float(10 * np.finfo(dtype).eps))
    found = {method: largest_difference(curves[method].losses, curves[PYTORCH].losses) for method in METHODS}
    return {
        "limit": limit,
        "difference": found,
        "agrees": {method: value <= limit for method, value in found.items()},
        "speed_ratio": {
            method: curves[PYTORCH].seconds[-1] / curves[method].seconds[-1] for method in METHODS
        },
    }


def report(title: str, comparison: dict[str, Any]) -> None:
    """A line a method."""
    for method, value in comparison["difference"].items():
        told = verdict(value, comparison["limit"], comparison["agrees"][method])
        times = f"PyTorch's time / ours {comparison['speed_ratio'][method]:.1f}"
        print(f"{title} {method}: largest relative difference to PyTorch {told}; {times}")


def as_json(curves: dict[str, Curve]) -> dict[str, Any]:
    """By run but those under noise: losses to nine digits, seconds at every STRIDE-th step, accuracy."""
    return {
        run: {
            "losses": [float(f"{loss:.9g}") for loss in curve.losses],
            "seconds": [round(second, 4) for second in curve.seconds[STRIDE - 1 :: STRIDE]],
            **({"backward": curve.backward} if curve.backward else {}),
            **({} if curve.accuracy is None else {"test_accuracy": curve.accuracy}),
        }
        for run, curve in curves.items()
        if not run.startswith("noise")
    }


def draw(axes: Sequence[Any], curves: dict[str, Curve], comparison: dict[str, Any], title: str) -> None:
    """Losses by step, their differences to PyTorch, and losses by time, on three axes."""
    by_step, apart, by_time = axes
    steps = range(1, len(curves[PYTORCH].losses) + 1)
    width = {run: max(1.0, 5.0 - 2.0 * k) for k, run in enumerate([PYTORCH, *comparison["difference"]])}
    apart.set(yscale="log", ylim=(1e-17, 1))
    for run in width:
        curve = curves[run]
        (line,) = by_step.plot(steps, curve.losses, linewidth=width[run], label=run)
        by_time.plot(curve.seconds, smooth(curve.losses), color=line.get_color(), label=run)
        if run != PYTORCH:
            differences = relative_differences(curve.losses, curves[PYTORCH].losses)
            draw_differences(apart, differences, ".", markersize=3, color=line.get_color(), label=run)
    draw_limit(apart, comparison["limit"])
    by_step.set(title=title, xlabel="step", ylabel="training loss, a batch")
    apart.set(xlabel="step", ylabel="relative difference to PyTorch, where not 0")
    by_time.set(xscale="log", xlabel="seconds", ylabel=f"training loss, mean of {STRIDE} steps")
    for axis in axes:
        axis.legend()


def smooth(losses: Sequence[float]) -> np.ndarray:
    """Means over the last STRIDE steps, fewer at the start."""
    sums = np.concatenate([[0.0], np.cumsum(losses)])
    ends = np.arange(1, len(sums))
    starts = np.maximum(0, ends - STRIDE)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))
