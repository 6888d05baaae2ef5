"""Figures 7 and 13: training an RNN on bitstreams and a GRU on features of audio, by our backward passes and
by PyTorch, from the same parameters on the same batches.

Training amplifies rounding errors, so the yardstick is our own curve against itself with noise on every
gradient element, as large as the rounding of a sum over all steps of a batch. The paper trains the RNN with a
learning rate of 1e-5 for 80 epochs of 2,000 steps; a larger one shows the same in less time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.data import Dataset, Split, load
from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.models import build_model
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.pictures.picture_file import picture
from bppsa_cupy.tools.reproduction.curves import (
    PYTORCH,
    Curve,
    largest_difference,
    nine_digits,
    relative_differences,
    rounding_noise,
)
from bppsa_cupy.tools.reproduction.drawings import draw_differences, draw_limit, finish, smooth
from bppsa_cupy.tools.reproduction.result_file import add_options, picture_path, write_result
from bppsa_cupy.tools.reproduction.torch_training import import_torch, train_beside
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


def add_figure7(parser: argparse.ArgumentParser) -> None:
    """The options of `bppsa-reproduce figure7`."""
    parser.add_argument("--data", type=Path, required=True, help="bitstreams of bppsa-data, T = 1000")
    _add_training(parser, epochs=3, lr=3e-4)


def add_figure13(parser: argparse.ArgumentParser) -> None:
    """The options of `bppsa-reproduce figure13`."""
    parser.add_argument(
        "--data", type=Path, required=True, nargs="+", metavar="FILE", help="features of bppsa-data audio"
    )
    _add_training(parser, epochs=15, lr=1e-3)


def _add_training(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    add_options(parser, **defaults, iterations=None, batch_size=16, clip=1.0, seed=0, threads=1)


def figure7(arguments: argparse.Namespace) -> None:
    """Train in both dtypes, compare, and write figure7.json and figure7.png."""
    facts: dict[str, Any] = {"comparison": {}, "curves": {}}
    with trained(arguments, "rnn", [arguments.data]) as cases:
        for dataset, dtype, curves, comparison in cases:
            facts["comparison"][dtype], facts["curves"][dtype] = comparison, as_json(curves)
            _report(dtype, comparison)
            given = {"data": {"name": dataset.name, "samples": len(dataset.train)}}
        write_result(arguments, get_device(arguments.device), SETTINGS, facts, given=given)


def figure13(arguments: argparse.Namespace) -> None:
    """Train on each file in both dtypes, compare, and write figure13.json and figure13.png; test accuracies
    stand beside a linear model's on the features' means where these are not normalised away."""
    rows: list[dict[str, Any]] = []
    with trained(arguments, "gru", arguments.data) as cases:
        for dataset, dtype, curves, comparison in cases:
            _report(f"{dataset.name} {dtype}", comparison)
            facts: dict[str, Any] = {"name": dataset.name, "dtype": dtype, "samples": len(dataset.train)}
            if dataset.test is not None:
                reached = {run: curves[run].accuracy for run in (*METHODS, PYTORCH)}
                if dataset.normalization is not None:
                    facts["linear_accuracy"] = linear_accuracy(dataset)
                    reached["a linear model on the features' means"] = facts["linear_accuracy"]
                accuracies = ", ".join(f"{name} {value:.1%}" for name, value in reached.items())
                print(f"{dataset.name} {dtype}: test accuracy: {accuracies}")
            rows.append({"data": facts, "comparison": comparison, "curves": as_json(curves)})
        write_result(arguments, get_device(arguments.device), SETTINGS, {"rows": rows})


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
                _draw(row, curves, comparison, f"{model.upper()} on {dataset.name}, {dtype}")
                yield dataset, dtype, curves, comparison

        yield each()


def train_all(
    arguments: argparse.Namespace, dataset: Dataset, model: str, dtype: str
) -> tuple[dict[str, Curve], dict[str, Any]]:
    """Curves by run (each of METHODS, PyTorch, "noise 1" …), and how the methods compare with PyTorch's."""

    def build() -> Sequential:
        options = {**cli.taken(arguments, "seed", "device"), "dtype": dtype}
        network = build_model(model, dataset.input_shape, classes=dataset.classes, **options)
        network.use(network.plan(batch_size=arguments.batch_size))
        return network

    names = ("epochs", "iterations", "batch_size", "seed", "clip", "progress")
    settings = Settings(**cli.taken(arguments, *names))
    runs = {**{method: replace(settings, method=method) for method in METHODS}, PYTORCH: settings}
    ulps = np.sqrt(dataset.input_shape[0] * arguments.batch_size)
    for seed in NOISE_SEEDS:
        noise = rounding_noise(seed, ulps, dtype)
        runs[f"noise {seed}"] = replace(settings, method=METHODS[0], gradient_hook=noise)
    curves = train_beside(build, dataset, runs, Adam, timed=True, **cli.taken(arguments, "lr", "threads"))
    return curves, _compare(curves, dtype)


def _compare(curves: dict[str, Curve], dtype: str) -> dict[str, Any]:
    """Each method's largest relative difference to PyTorch over the steps, the limit it is held to, and the
    ratio of PyTorch's seconds to its."""
    base, theirs = curves[METHODS[0]], curves[PYTORCH]
    noise = [largest_difference(curves[f"noise {seed}"].losses, base.losses) for seed in NOISE_SEEDS]
    limit = max(3 * max(noise), float(10 * np.finfo(dtype).eps))
    found = {method: largest_difference(curves[method].losses, theirs.losses) for method in METHODS}
    return {
        "limit": limit,
        "difference": found,
        "agrees": {method: value <= limit for method, value in found.items()},
        "speed_ratio": {method: theirs.seconds[-1] / curves[method].seconds[-1] for method in METHODS},
    }


def _report(title: str, comparison: dict[str, Any]) -> None:
    for method, value in comparison["difference"].items():
        agrees = "agrees" if comparison["agrees"][method] else "DIFFERS"
        told = f"{value:.2e} (limit {comparison['limit']:.2e}): {agrees}"
        times = f"PyTorch's time / ours {comparison['speed_ratio'][method]:.1f}"
        print(f"{title} {method}: largest relative difference to PyTorch {told}; {times}")


def as_json(curves: dict[str, Curve]) -> dict[str, Any]:
    """By run but those under noise: losses, seconds at every STRIDE-th step, accuracy."""
    return {
        run: {
            "losses": nine_digits(curve.losses),
            "seconds": [round(second, 4) for second in curve.seconds[STRIDE - 1 :: STRIDE]],
            **({"backward": curve.backward} if curve.backward else {}),
            **({} if curve.accuracy is None else {"test_accuracy": curve.accuracy}),
        }
        for run, curve in curves.items()
        if not run.startswith("noise")
    }


def _draw(axes: Sequence[Any], curves: dict[str, Curve], comparison: dict[str, Any], title: str) -> None:
    """Losses by step, their differences to PyTorch, and losses by time."""
    by_step, apart, by_time = axes
    apart.set(yscale="log", ylim=(1e-17, 1))
    theirs = curves[PYTORCH].losses
    for place, run in enumerate((PYTORCH, *METHODS)):
        curve, style = curves[run], {"color": f"C{place}", "label": run}
        by_step.plot(range(1, len(theirs) + 1), curve.losses, linewidth=max(1.0, 5.0 - 2.0 * place), **style)
        by_time.plot(curve.seconds, smooth(curve.losses, STRIDE), **style)
        draw_differences(apart, relative_differences(curve.losses, theirs), **style)
    draw_limit(apart, comparison["limit"])
    by_step.set(title=title, xlabel="step", ylabel="training loss, a batch")
    apart.set(xlabel="step", ylabel="relative difference to PyTorch, where not 0")
    by_time.set(xscale="log", xlabel="seconds", ylabel=f"training loss, mean of {STRIDE} steps")
    finish(axes)


def linear_accuracy(dataset: Dataset) -> float:
    """Test accuracy of scikit-learn's logistic regression on each sample's mean over its steps.

    Raises BppsaError where scikit-learn is missing.
    """
    try:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    except ImportError as cause:
        raise BppsaError(
            f"the linear model takes scikit-learn, which cannot be imported ({cause}): install the extra demo"
        ) from cause
    assert dataset.test is not None
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    model.fit(_means(dataset.train), dataset.train.labels)
    return float(model.score(_means(dataset.test), dataset.test.labels))


def _means(split: Split) -> np.ndarray:
    """(N, F) float64: the mean over the steps that are no padding."""
    inputs = split.inputs.astype(np.float64)
    if split.lengths is None:
        return np.asarray(inputs.mean(axis=1))
    padding = np.arange(inputs.shape[1]) >= split.lengths[:, None]
    inputs[padding] = 0
    return np.asarray(inputs.sum(axis=1) / split.lengths[:, None])
