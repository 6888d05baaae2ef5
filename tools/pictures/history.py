"""The picture of a training."""

from __future__ import annotations

from pathlib import Path

from bppsa_cupy.tools.pictures.picture_file import picture
from bppsa_cupy.training.steps import History


def plot_history(history: History, path: Path, title: str) -> None:
    """Training loss by step and test loss by epoch, as a picture."""
    with picture(path, save={"dpi": 150}, figsize=(7, 4), layout="constrained") as (_, axes):
        steps = [row["step"] for row in history.rows]
        axes.plot(steps, history.losses, linewidth=0.8, label="training loss, a batch")
        evaluations = history.evaluations()
        if evaluations:
            tested = ([row[name] for row in evaluations] for name in ("step", "test_loss"))
            axes.plot(*tested, "o-", label="test loss")
        axes.set(xlabel="step", ylabel="cross entropy", title=title)
        axes.legend()
