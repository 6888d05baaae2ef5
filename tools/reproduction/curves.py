"""Training curves of several runs from the same parameters on the same batches: their differences, pictures
and files.

Rounding makes two runs differ by a unit in the last place at first, and training amplifies that. So a run
agrees with the reference if its losses lie no further apart than three times the losses of a run under noise:
as large as rounding, on every gradient element.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.data import Dataset
from bppsa_cupy.devices import Device
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.machine import provenance
from bppsa_cupy.tools.pictures.picture_file import check_picture, picture
from bppsa_cupy.training.loop import evaluate, train
from bppsa_cupy.training.optimizers import Optimizer
from bppsa_cupy.training.settings import Settings

#: Name of PyTorch's run, and the beginning of the names of runs under noise.
PYTORCH, NOISE = "PyTorch", "noise"
#: The largest difference where there is no run under noise: float64 makes rounding visible only later.
FLOAT64_LIMIT = 1e-8
#: Samples of a batch of the test; steps that a point of a smoothed curve is the mean of.
TEST_BATCH, WINDOW = 64, 20


@dataclass
class Curve:
    """The results of training.

    `losses` has the mean loss of each step, and `seconds` the time since the start, after each backward pass.
    `evaluations` has the mean loss and accuracy on the test samples, in order. `backward` names the methods
    that ran (empty for PyTorch), and `state` has the final parameters and buffers by name.
    """

    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    evaluations: list[tuple[float, float]] = field(default_factory=list)
    backward: tuple[str, ...] = ()
    state: dict[str, np.ndarray] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Losses, seconds at every WINDOW-th step, the backward pass and test accuracies."""
        return {
            "losses": [float(f"{loss:.9g}") for loss in self.losses],
            "seconds": [round(second, 4) for second in self.seconds[WINDOW - 1 :: WINDOW]],
            "backward": self.backward,
            "test_accuracies": [accuracy for _, accuracy in self.evaluations],
        }


def train_by_us(network: Sequential, dataset: Dataset, settings: Settings, optimizer: Optimizer) -> Curve:
    """Train the network, and test it at the end if there are test samples; `seconds` are of training
    alone."""
    curve, hook = Curve(), settings.gradient_hook

    def timed(network: Sequential) -> None:
        curve.seconds.append(time.perf_counter() - started)
        if hook is not None:
            hook(network)

    started = time.perf_counter()
    history = train(network, replace(dataset, test=None), optimizer, replace(settings, gradient_hook=timed))
    report = network.last_backward
    assert report is not None
    curve.losses = history.losses.tolist()
    curve.backward = (report.method, *report.schedules, *report.backward_ways)
    if dataset.test is not None:
        curve.evaluations = [evaluate(network, dataset.test, TEST_BATCH)]
    curve.state = network.state_dict()
    return curve


def rounding_noise(seed: int, dtype: str, ulps: float = 1.0) -> Callable[[Sequential], None]:
    """A gradient hook that changes every gradient element by `ulps` units in the last place, up or down."""
    generator = np.random.default_rng(seed)
    size = ulps * np.finfo(dtype).eps

    def hook(network: Sequential) -> None:
        flat = network.gradients.flat
        signs = generator.choice(np.array([-1, 1], dtype), flat.shape)
        flat *= network.device.asarray(1 + np.asarray(size, dtype) * signs, flat.dtype)

    return hook


def settings_of(arguments: argparse.Namespace, *names: str, **more: Any) -> Settings:
    """Settings of training from the options of these names."""
    return Settings(**cli.taken(arguments, *names), progress=sys.stderr.isatty(), **more)


def relative_differences(losses: Sequence[float], reference: Sequence[float]) -> np.ndarray:
    """The relative difference of losses to a reference's, by step."""
    ours, theirs = np.array(losses), np.array(reference)
    return np.asarray(np.abs(ours - theirs) / np.abs(theirs))


def compare(curves: Mapping[str, Curve], reference: str, noisy_of: str, dtype: str) -> dict[str, Any]:
    """How far each run's losses lie from the reference's.

    The limit is three times the largest difference of a run under noise to the run `noisy_of`, at least ten
    units in the last place; without such runs it is FLOAT64_LIMIT.
    """
    noise = [
        float(relative_differences(curve.losses, curves[noisy_of].losses).max())
        for name, curve in curves.items()
        if name.startswith(NOISE)
    ]
    limit = max(3 * max(noise), float(10 * np.finfo(dtype).eps)) if noise else FLOAT64_LIMIT
    others = [name for name in curves if name != reference and not name.startswith(NOISE)]
    theirs = curves[reference]
    largest = {k: float(relative_differences(curves[k].losses, theirs.losses).max()) for k in others}
    return {
        "reference": reference,
        "limit": limit,
        "difference": largest,
        "agrees": {name: value <= limit for name, value in largest.items()},
        "speed_ratio": {name: theirs.seconds[-1] / curves[name].seconds[-1] for name in others},
        "accuracy": {name: curve.evaluations[-1][1] for name, curve in curves.items() if curve.evaluations},
    }


def print_comparison(title: str, comparison: Mapping[str, Any]) -> None:
    """A line per run."""
    for name, value in comparison["difference"].items():
        agrees = "agrees" if comparison["agrees"][name] else "DIFFERS"
        accuracy = comparison["accuracy"].get(name)
        tested = "" if accuracy is None else f"; test accuracy {accuracy:.2%}"
        print(
            f"{title} {name}: largest relative difference to {comparison['reference']} {value:.2e} (limit "
            f"{comparison['limit']:.2e}): {agrees}; its time / ours "
            f"{comparison['speed_ratio'][name]:.1f}{tested}"
        )


def write_figure(
    arguments: argparse.Namespace,
    device: Device,
    results: Mapping[str, tuple[Mapping[str, Curve], Mapping[str, Any]]],
    **facts: Any,
) -> None:
    """Write FIGURE.json and FIGURE.png: a row per result, with its curves and their comparison, by title."""
    path = picture_path(arguments)
    rows = [
        {
            "title": title,
            "comparison": comparison,
            "curves": {name: curve.to_json() for name, curve in curves.items() if not name.startswith(NOISE)},
        }
        for title, (curves, comparison) in results.items()
    ]
    write_result(arguments, device, {**facts, "rows": rows})
    options = {"figsize": (14, 3.5 * len(results)), "layout": "constrained", "squeeze": False}
    with picture(path, len(results), 3, save={"dpi": 110}, **options) as (_, axes):
        for row, (title, (curves, comparison)) in zip(axes, results.items(), strict=True):
            _draw(row, title, curves, comparison)


def _draw(axes: Any, title: str, curves: Mapping[str, Curve], comparison: Mapping[str, Any]) -> None:
    """Losses by step, their differences to the reference, and losses by time."""
    by_step, apart, by_time = axes
    theirs = curves[comparison["reference"]].losses
    for place, (name, curve) in enumerate(curves.items()):
        steps, smoothed = np.arange(1, len(curve.losses) + 1), smooth(curve.losses)
        differences = relative_differences(curve.losses, theirs)
        if name.startswith(NOISE):
            apart.plot(steps[differences > 0], differences[differences > 0], ".", color="0.6", markersize=3)
            continue
        style = {"color": f"C{place}", "label": name}
        by_step.plot(steps, smoothed, linewidth=max(1.0, 5.0 - 2.0 * place), **style)
        by_time.plot(curve.seconds, smoothed, **style)
        if differences.any():
            apart.plot(steps[differences > 0], differences[differences > 0], ".", markersize=3, **style)
    limit = comparison["limit"]
    apart.axhline(limit, color="0.2", linestyle="--", linewidth=0.8, label=f"limit {limit:.1e}")
    apart.set(yscale="log", ylim=(1e-17, 1))
    by_step.set(title=title, xlabel="step", ylabel=f"training loss, mean of {WINDOW} steps")
    apart.set(xlabel="step", ylabel=f"relative difference to {comparison['reference']}, where not 0")
    by_time.set(xscale="log", xlabel="seconds", ylabel=f"training loss, mean of {WINDOW} steps")
    for panel in axes:
        panel.legend(fontsize="small")


def smooth(losses: Sequence[float]) -> np.ndarray:
    """Means over the last WINDOW steps, fewer at the start."""
    sums = np.concatenate([[0.0], np.cumsum(losses)])
    ends = np.arange(1, len(sums))
    starts = np.maximum(0, ends - WINDOW)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))


def picture_path(arguments: argparse.Namespace) -> Path:
    """Where the figure's picture goes, in a folder that exists. Raises BppsaError if it cannot be written."""
    arguments.output.mkdir(parents=True, exist_ok=True)
    path: Path = arguments.output / f"{arguments.figure}.png"
    check_picture(path)
    return path


def write_result(arguments: argparse.Namespace, device: Device, facts: Mapping[str, Any]) -> None:
    """Write FIGURE.json: the command, its options, the machine, and the facts."""
    left_out = ("figure", "command", "run", "output", "device")
    settings = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(arguments).items()
        if name not in left_out
    }
    result = {
        "name": arguments.figure,
        "command": arguments.command,
        "settings": settings,
        **provenance(device, device.workers),
        **facts,
    }
    cli.write_json(arguments.output / f"{arguments.figure}.json", result)
