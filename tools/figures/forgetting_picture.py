"""The picture of how recurrent networks forget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.tools.figures.picture_file import picture

#: A colour, a mark and a name for each cell.
STYLES = {"rnn": ("C0", "o", "RNN, tanh"), "gru": ("C1", "s", "GRU"), "lstm": ("C2", "^", "LSTM")}


def plot(facts: dict[str, Any], path: Path) -> None:
    """Draw the result's JSON: gradients on their way back, a panel a cell; exponents and accuracies."""
    by_cell: dict[str, list[dict[str, Any]]] = {}
    for row in facts["rows"]:
        by_cell.setdefault(row["cell"], []).append(row)
    with picture(path, 2, 3, save={"dpi": 130}, figsize=(10, 6.4), layout="constrained") as (figure, axes):
        for panel, (cell, rows) in zip(axes[0], by_cell.items(), strict=True):
            _draw_norms(panel, STYLES[cell][2], rows)
        low = min(panel.get_ylim()[0] for panel in axes[0])
        high = max(panel.get_ylim()[1] for panel in axes[0])
        for panel in axes[0]:
            panel.set_ylim(low, high)
        axes[0, 0].set_ylabel("norm of ∂s$_{last}$/∂s$_t$")
        exponents, accuracies, both = axes[1]
        for cell, rows in by_cell.items():
            _draw_by_radius(exponents, accuracies, both, cell, rows)
        for panel in (exponents, both):
            draw_zero = panel.axhline if panel is exponents else panel.axvline
            draw_zero(0, color="0.35", linestyle="--", linewidth=0.9)
        exponents.plot([], [], "k-", label="before training")
        exponents.plot([], [], "k:", label="after training")
        chosen = [row["radius"] for row in next(iter(by_cell.values()))]
        for panel in (exponents, accuracies):
            panel.set_xscale("log")
            panel.set_xticks(chosen, [f"{radius:g}" for radius in chosen])
            panel.set_xticks([], minor=True)
            panel.set_xlabel("spectral radius of W$_{hh}$ before training")
        exponents.set_ylabel("largest Lyapunov exponent, 1 / step")
        accuracies.set_ylabel("accuracy after training, %")
        both.set(xlabel="largest exponent before training, 1 / step", ylabel="accuracy after training, %")
        for panel in axes.flat:
            panel.grid(color="0.92")
            panel.set_axisbelow(True)
            panel.tick_params(labelsize=8)
            panel.legend(fontsize=8)
        name, steps = facts["data"]["name"], facts["data"]["steps"]
        figure.suptitle(f"{name}: sequences of up to {steps} steps", fontsize=11)


def _draw_norms(panel: Any, name: str, rows: list[dict[str, Any]]) -> None:
    from matplotlib import colormaps
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for place, row in enumerate(rows):
        colour = colormaps["plasma"](0.9 * place / max(1, len(rows) - 1))
        logs = np.maximum(row["log10_norms"], -400)
        panel.plot(np.arange(len(logs)), logs, color=colour, label=f"radius {row['radius']:g}")
    panel.axhline(0, color="0.35", linestyle="--", linewidth=0.9)
    panel.yaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"$10^{{{value:.0f}}}$"))
    panel.set_xlabel("steps back from the end")
    panel.set_title(name, fontsize=10)


def _draw_by_radius(
    exponents: Any, accuracies: Any, both: Any, cell: str, rows: list[dict[str, Any]]
) -> None:
    colour, mark, name = STYLES[cell]
    chosen = [row["radius"] for row in rows]
    for key, style in (("exponents", "-"), ("trained_exponents", ":")):
        values = [np.median(row[key]) for row in rows]
        label = name if style == "-" else None
        exponents.plot(chosen, values, style, marker=mark, color=colour, markersize=4, label=label)
    means, least, most = (
        np.array([100 * reduce(row["accuracies"]) for row in rows]) for reduce in (np.mean, np.min, np.max)
    )
    bars = {"yerr": (means - least, most - means), "capsize": 2, "elinewidth": 0.8, "markersize": 4}
    accuracies.errorbar(chosen, means, marker=mark, color=colour, label=name, **bars)
    started = [np.median(row["exponents"]) for row in rows]
    both.errorbar(started, means, fmt=mark, color=colour, label=name, **bars)
