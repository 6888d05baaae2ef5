"""The picture of a table of pipelined training: accuracy by the number of stages, and curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bppsa_cupy.tools.figures.picture_file import picture

#: Accuracies this much below the panel's best, in points, are told at the lower edge.
FAR = 25


def draw(rows: list[dict[str, Any]], path: Path, title: str) -> None:
    """A column a network and rate: above, mean accuracy by stages, a line a way, seeds as points, the paper's
    as diamonds; below, the first seed's curves of the schedule that the row of the paper has.

    rows  of `pipeline_tables.summary`
    """
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    size = {"figsize": (6.5 * len(panels), 8.5), "layout": "constrained", "squeeze": False}
    with picture(path, 2, len(panels), save={"dpi": 120}, **size) as (figure, axes):
        figure.suptitle(title)
        for column, panel in enumerate(panels):
            own = [row for row in rows if row["panel"] == panel]
            _by_stages(axes[0][column], own)
            axes[0][column].set_title(panel)
            _curves(axes[1][column], own)


def _by_stages(axes: Any, rows: list[dict[str, Any]]) -> None:
    best = max(row["mean"] for row in rows)
    near = [row["mean"] for row in rows if row["mean"] >= best - FAR]
    seeds = [value for row in rows for value in row["accuracies"] if value >= best - FAR]
    known = [row["paper"] for row in rows if row["paper"] is not None]
    low, high = min([*near, *seeds, *known]), max([*seeds, *known])
    room = max(high - low, 0.5)
    floor = low - 0.25 * room
    axes.set(
        ylim=(floor, high + 0.1 * room),
        xlabel="stages, forward and backward",
        ylabel="test accuracy, percent",
    )
    counts = sorted({row["stages"] for row in rows})
    axes.set_xticks(range(len(counts)), [str(count) if count else "non-pipelined" for count in counts])
    for number, way in enumerate(dict.fromkeys(row["way"] for row in rows)):
        own = [row for row in rows if row["way"] == way]
        places = [counts.index(row["stages"]) + 0.06 * number for row in own]
        inside = [(x, row["mean"]) for x, row in zip(places, own, strict=True) if row["mean"] >= floor]
        color = f"C{number}"
        axes.plot(*(zip(*inside, strict=True) if inside else ([], [])), "o-", color=color, label=way)
        for x, row in zip(places, own, strict=True):
            axes.plot([x] * len(row["accuracies"]), row["accuracies"], ".", color=color, alpha=0.45)
            if row["mean"] < floor:
                below, above = (x, floor), (x, floor + 0.06 * number * room)
                style = {"color": color, "ha": "center", "fontsize": "small"}
                arrow = {"arrowstyle": "->", "color": color}
                said = f"{row['mean']:.0f} %" if row["mean"] else "diverged"
                axes.annotate(said, below, above, arrowprops=arrow, **style)
    told = [(counts.index(row["stages"]), row["paper"]) for row in rows if row["paper"] is not None]
    if told:
        axes.plot(*zip(*told, strict=True), "D", color="black", fillstyle="none", label="paper")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def _curves(axes: Any, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if row["curve"] and row["way"] in ("non-pipelined", "stale"):
            steps, accuracies = zip(*row["curve"], strict=True)
            label = f"{row['stages']} stages, stale" if row["stages"] else "non-pipelined"
            axes.plot(steps, accuracies, linewidth=1, label=label)
    axes.set(xlabel="iteration", ylabel="test accuracy of the first seed, percent")
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(fontsize="small")
