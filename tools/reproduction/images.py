"""Training curves of a convolutional network by our back-propagation and by PyTorch: from the same parameters
on the same batches, with the same rates.

Rounding makes the two differ by a unit in the last place at first, and training amplifies that until the
curves are two samples of the same noise. So three things are told: the first steps, in both dtypes, with
parameters and running statistics; the whole curves, beside one of our own with a unit in the last place added
to or taken from every gradient; and the test accuracies, of several seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.data import load, number_of_batches
from bppsa_cupy.data.augment import AUGMENTATIONS
from bppsa_cupy.models import build_model
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.pictures.picture_file import picture
from bppsa_cupy.tools.reproduction.curves import (
    PYTORCH,
    Curve,
    last_place_noise,
    nine_digits,
    relative_differences,
)
from bppsa_cupy.tools.reproduction.drawings import draw_differences, draw_means, finish
from bppsa_cupy.tools.reproduction.result_file import add_options, picture_path, write_result
from bppsa_cupy.tools.reproduction.torch_training import import_torch, train_beside
from bppsa_cupy.training.loop import check_dataset, evaluate
from bppsa_cupy.training.optimizers import SGD
from bppsa_cupy.training.settings import Settings

#: What our run is called, and ours with a unit in the last place added to or taken from every gradient.
OURS, NOISE = "ours", "ours with noise"
#: The options that the result follows from.
SETTINGS = (
    "model", "epochs", "iterations", "batch_size", "lr", "lr_schedule", "augment", "seed", "dtype", "threads",
)  # fmt: skip
#: Of SGD, as He et al. (2016) have them.
OPTIMIZER: dict[str, Any] = {"momentum": 0.9, "weight_decay": 1e-4}
#: Steps that a point of the picture's losses is a mean of.
WINDOW = 50
#: Steps compared by dtype, and how far losses, parameters and buffers may lie apart there. In float32
#: rounding decides the sign of some inputs of ReLU, and each moves gradients by far more than rounding does.
FIRST = {"float64": (100, 1e-8), "float32": (1, 1e-4)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bppsa-reproduce resnet20`."""
    parser.add_argument("--data", required=True, help="images, as bppsa-train takes them")
    parser.add_argument(
        "--model", default="resnet20",
        help="a convolutional one, as bppsa-train takes it; it names the files, too (default resnet20)",
    )  # fmt: skip
    add_options(parser, epochs=8, iterations=None, batch_size=32, lr=0.05, threads=None)
    parser.add_argument("--lr-schedule", metavar="SCHEDULE", help="as bppsa-train takes it")
    parser.add_argument("--augment", choices=AUGMENTATIONS, help="as bppsa-train takes it")
    parser.add_argument(
        "--seed", type=cli.not_negative, nargs="+", default=[0], metavar="N",
        help="of parameters, order and random changes; one training a seed (default 0)",
    )  # fmt: skip
    parser.add_argument("--dtype", choices=tuple(FIRST), default="float32")


def run(arguments: argparse.Namespace) -> None:
    """Train by both, compare, and write MODEL.json and MODEL.png, anew after each seed."""
    import_torch()
    arguments.figure = Path(arguments.model.rpartition(":")[2]).name
    path, trainings = picture_path(arguments), Trainings(arguments)
    dataset, network = trainings.dataset, trainings.network(arguments.seed[0])
    check_dataset(network, dataset)
    arguments.threads = arguments.threads or network.device.workers
    first = {dtype: trainings.first_steps(dtype) for dtype in FIRST}
    for dtype, found in first.items():
        parts = ", ".join(f"{name} {value:.1e}" for name, value in found["difference"].items())
        told = f"{parts} (limit {found['limit']:.0e}): {'agrees' if found['agrees'] else 'DIFFERS'}"
        print(f"first {found['steps']} steps, {dtype}: largest relative difference: {told}", flush=True)
    given = {
        "optimizer": {"name": "SGD", **OPTIMIZER},
        "data": {"name": dataset.name, "training": len(dataset.train), "test": len(dataset.test or ())},
    }
    facts: dict[str, Any] = {"steps_per_epoch": trainings.per_epoch, "first_steps": first, "rows": []}
    for row in trainings.rows():
        print(f"seed {row['seed']}: {_row_in_words(row['comparison'])}", flush=True)
        facts["rows"].append(row)
        write_result(arguments, network.device, SETTINGS, facts, given=given)
        plot(facts, path, f"{arguments.model} on {dataset.name}, {arguments.dtype}")


class Trainings:
    """The runs that the arguments ask for."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments, self.dataset = arguments, load(arguments.data)
        self.per_epoch = number_of_batches(self.dataset.train, arguments.batch_size)
        options = cli.taken(arguments, "epochs", "iterations", "batch_size", "lr_schedule", "augment")
        settings = Settings(method="bp", progress=sys.stderr.isatty(), **options)
        # A schedule of the steps of the whole training, for a part of it too.
        schedule = settings.schedule(self.per_epoch)
        self.settings = replace(settings, lr_schedule=None if schedule is None else str(schedule))

    def network(self, seed: int, dtype: str | None = None) -> Sequential:
        """A network with the initial parameters of a seed."""
        return build_model(
            self.arguments.model, self.dataset.input_shape, classes=self.dataset.classes, seed=seed,
            dtype=dtype or self.arguments.dtype, device=self.arguments.device,
        )  # fmt: skip

    def curves(
        self, runs: dict[str, Settings], seed: int, dtype: str | None = None, *, tested: bool = True
    ) -> dict[str, Curve]:
        """Curves by run, each from the initial parameters of a seed."""
        dataset = self.dataset if tested else replace(self.dataset, test=None)
        options = {**cli.taken(self.arguments, "lr", "threads"), **OPTIMIZER}
        return train_beside(lambda: self.network(seed, dtype), dataset, runs, SGD, **options)

    def first_steps(self, dtype: str) -> dict[str, Any]:
        """How far the two lie apart in the first steps of the first seed: the largest relative difference of
        a loss, and of all parameters and all buffers after them, by norms."""
        steps, limit = FIRST[dtype]
        seed, last = self.arguments.seed[0], self.settings.last_step(self.per_epoch)
        settings = replace(self.settings, seed=seed, iterations=min(steps, last))
        network = self.network(seed, dtype)
        curves = self.curves(dict.fromkeys((PYTORCH, OURS), settings), seed, dtype, tested=False)
        theirs, ours = curves[PYTORCH], curves[OURS]
        by_step = relative_differences(theirs.losses, ours.losses)
        found = {"losses": float(by_step.max())}
        for group, names in {"parameters": network.parameters, "buffers": network.buffers}.items():
            if len(names):
                first, second = (
                    np.concatenate([np.ravel(curve.state[name]).astype(np.float64) for name in names])
                    for curve in (ours, theirs)
                )
                found[group] = float(np.linalg.norm(first - second) / np.linalg.norm(second))
        return {
            "steps": len(ours.losses),
            "difference": found,
            "limit": limit,
            "agrees": max(found.values()) <= limit,
            "by_step": by_step.tolist(),
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """The curves of each seed and what they say; noise beside those of the first one."""
        for seed in self.arguments.seed:
            settings = replace(self.settings, seed=seed)
            runs = dict.fromkeys((OURS, PYTORCH), settings)
            if seed == self.arguments.seed[0]:
                runs[NOISE] = replace(settings, gradient_hook=last_place_noise(seed))
            curves = self.curves(runs, seed)
            comparison = compare(curves)
            if self.dataset.test is not None:
                network = self.network(seed)
                network.load_state_dict(curves[PYTORCH].state)
                tested = evaluate(network, self.dataset.test, self.settings.batch_size)
                comparison["accuracy_of_pytorchs_state_by_us"] = tested[1]
            yield {"seed": seed, "comparison": comparison, "curves": as_json(curves)}


def compare(curves: dict[str, Curve]) -> dict[str, Any]:
    """How PyTorch's curve, and ours under noise, lie to ours: the relative difference of the first loss, and
    the step at which it passes 1 %; test accuracies at the end, and PyTorch's less ours in points."""
    others = {run: curve for run, curve in curves.items() if run != OURS}
    by_step = {run: relative_differences(curve.losses, curves[OURS].losses) for run, curve in others.items()}
    found: dict[str, Any] = {
        "first_loss": {run: float(differences[0]) for run, differences in by_step.items()},
        "step_beyond_1_percent": {run: _first_beyond(values, 0.01) for run, values in by_step.items()},
    }
    reached = {run: curve.accuracy for run, curve in curves.items() if curve.accuracy is not None}
    if reached:
        ours = reached[OURS]
        found["accuracy"] = reached
        found["points_from_ours"] = {run: 100 * (reached[run] - ours) for run in others}
    return found


def as_json(curves: dict[str, Curve]) -> dict[str, Any]:
    """Losses; test losses and accuracies by epoch."""
    return {
        run: {
            "losses": nine_digits(curve.losses),
            "test_losses": nine_digits(loss for loss, _ in curve.evaluations),
            "test_accuracies": [accuracy for _, accuracy in curve.evaluations],
        }
        for run, curve in curves.items()
    }


def _first_beyond(differences: np.ndarray, limit: float) -> int | None:
    """The first step at which a difference passes the limit, from 1; None where none does."""
    beyond = np.flatnonzero(differences > limit)
    return int(beyond[0]) + 1 if beyond.size else None


def _row_in_words(comparison: dict[str, Any]) -> str:
    beyond = comparison["step_beyond_1_percent"][PYTORCH]
    told = "no loss is 1 % from PyTorch's"
    if beyond is not None:
        told = f"at step {beyond} a loss is 1 % from PyTorch's"
    if "accuracy" in comparison:
        reached = ", ".join(f"{run} {value:.2%}" for run, value in comparison["accuracy"].items())
        told += f"; test accuracy: {reached}"
    return f"the first loss lies {comparison['first_loss'][PYTORCH]:.1e} from PyTorch's; {told}"


def plot(facts: dict[str, Any], path: Path, title: str) -> None:
    """Draw the result's JSON: losses, their differences to ours, and test accuracies, a colour a seed."""
    options = {"figsize": (15, 4.6), "layout": "constrained"}
    with picture(path, 1, 3, save={"dpi": 110}, **options) as (figure, axes):
        losses, apart, tested = axes
        figure.suptitle(title)
        draw_differences(
            apart, facts["first_steps"]["float64"]["by_step"], color="k", label=f"{PYTORCH}, float64"
        )
        for index, row in enumerate(facts["rows"]):
            for run, line, marks in (
                (NOISE, None, {"color": "0.6", "marker": "d", "linestyle": ":"}),
                (
                    OURS,
                    {"linewidth": 4.5, "alpha": 0.35},
                    {"marker": "o", "fillstyle": "none", "markersize": 9},
                ),
                (PYTORCH, {"linewidth": 1.2}, {"marker": "x", "linestyle": "--"}),
            ):  # fmt: skip
                if run not in row["curves"]:
                    continue
                curve, label = row["curves"][run], f"{run}, seed {row['seed']}"
                style = {"color": f"C{index}", **marks}
                if line is not None:
                    own: dict[str, Any] = {"color": style["color"], "label": label, **line}
                    draw_means(losses, curve["losses"], WINDOW, scale=facts["steps_per_epoch"], **own)
                if run != OURS:
                    found = relative_differences(curve["losses"], row["curves"][OURS]["losses"])
                    draw_differences(apart, found, color=style["color"], label=label)
                if curve["test_accuracies"]:
                    values = [100 * value for value in curve["test_accuracies"]]
                    label = f"{label}: {values[-1]:.2f} at the end"
                    tested.plot(range(1, len(values) + 1), values, label=label, **style)
        losses.set(xlabel="epoch", ylabel=f"training loss, mean of {WINDOW} batches")
        apart.set(
            xlabel="step", ylabel="relative difference of a batch's loss to ours", xscale="log", yscale="log"
        )
        tested.set(xlabel="epoch", ylabel="test accuracy, %")
        finish(axes, alpha=0.3)
