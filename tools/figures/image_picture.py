"""The picture of training curves by us and by PyTorch: losses, how far they lie apart, test accuracies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.tools.figures.curves import draw_differences, relative_differences
from bppsa_cupy.tools.figures.picture_file import picture
from bppsa_cupy.tools.figures.torch_training import PYTORCH

#: What our run is called, and ours with a unit in the last place added to or taken from every gradient.
OURS, NOISE = "ours", "ours with noise"
#: Steps that a point of the losses is a mean of.
WINDOW = 50


def plot(facts: dict[str, Any], path: Path, title: str) -> None:
    """Draw the result's JSON: three axes, a colour a seed."""
    options = {"figsize": (15, 4.6), "layout": "constrained"}
    with picture(path, 1, 3, save={"dpi": 110}, **options) as (figure, (losses, apart, tested)):
        figure.suptitle(title)
        double = np.array(facts["first_steps"]["float64"]["by_step"])
        draw_differences(apart, double, ".", markersize=3, color="k", label=f"{PYTORCH}, float64")
        for index, row in enumerate(facts["rows"]):
            curves, color, seed = row["curves"], f"C{index}", f"seed {row['seed']}"
            _draw_losses(losses, curves, facts["steps_per_epoch"], color, seed)
            _draw_differences(apart, curves, color, seed)
            if curves[OURS]["test_accuracies"]:
                _draw_accuracies(tested, curves, color, seed)
        losses.set(xlabel="epoch", ylabel=f"training loss, mean of {WINDOW} batches")
        apart.set(
            xlabel="step", ylabel="relative difference of a batch's loss to ours", xscale="log", yscale="log"
        )
        tested.set(xlabel="epoch", ylabel="test accuracy, %")
        for axes in (losses, apart, tested):
            axes.grid(alpha=0.3)
            if axes.has_data():
                axes.legend(fontsize="small")


def _draw_losses(axes: Any, curves: dict[str, Any], per_epoch: int, color: str, seed: str) -> None:
    for run, style in (
        (OURS, {"color": color, "linewidth": 4.5, "alpha": 0.35}),
        (PYTORCH, {"color": color, "linewidth": 1.2}),
    ):
        values = np.array(curves[run]["losses"])
        window = min(WINDOW, len(values))
        means = np.convolve(values, np.full(window, 1 / window), mode="valid")
        epochs = np.arange(window, len(values) + 1) / per_epoch
        axes.plot(epochs, means, label=f"{run}, {seed}", **style)


def _draw_differences(axes: Any, curves: dict[str, Any], color: str, seed: str) -> None:
    ours = curves[OURS]["losses"]
    for run, style in ((NOISE, {"color": "0.6"}), (PYTORCH, {"color": color})):
        if run in curves:
            differences = relative_differences(curves[run]["losses"], ours)
            draw_differences(axes, differences, ".", markersize=3, label=f"{run}, {seed}", **style)


def _draw_accuracies(axes: Any, curves: dict[str, Any], color: str, seed: str) -> None:
    for run, style in (
        (NOISE, {"color": "0.6", "marker": "d", "linestyle": ":"}),
        (OURS, {"color": color, "marker": "o", "linestyle": "-", "fillstyle": "none", "markersize": 9}),
        (PYTORCH, {"color": color, "marker": "x", "linestyle": "--"}),
    ):
        if run in curves:
            values = [100 * value for value in curves[run]["test_accuracies"]]
            label = f"{run}, {seed}: {values[-1]:.2f} at the end"
            axes.plot(range(1, len(values) + 1), values, label=label, **style)
