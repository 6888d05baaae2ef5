"""Pictures of training curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.tools.figures.picture_file import save_figure
from bppsa_cupy.training.loop import History


def import_pyplot() -> Any:
    """matplotlib.pyplot without a display. Raises BppsaError naming the extra where it is missing."""
    try:
        import matplotlib
    except ImportError as error:
        raise BppsaError(f"a picture needs matplotlib ({error}): install the extra 'plot'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def plot_history(history: History, path: Path, title: str) -> None:
    """Training loss by step and test loss by epoch, as a PNG."""
    pyplot = import_pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    steps = [row["step"] for row in history.rows]
    axes.plot(steps, history.losses, linewidth=0.8, label="training loss, a batch")
    evaluations = history.evaluations()
    if evaluations:
        axes.plot(
            [row["step"] for row in evaluations],
            [row["test_loss"] for row in evaluations],
            "o-",
            label="test loss",
        )
    axes.set(xlabel="step", ylabel="cross entropy", title=title)
    axes.legend()
    save_figure(figure, path, dpi=150)
    pyplot.close(figure)
