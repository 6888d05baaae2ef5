"""The picture of a table of pipelined training: accuracies by row, and one seed's curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bppsa_cupy.tools.figures.picture_file import picture


def draw(rows: list[dict[str, Any]], path: Path, title: str) -> None:
    """Each row's accuracy over the seeds, with the paper's beside it; below, the curves of the first seed."""
    height = 2.0 + 0.26 * len(rows)
    with picture(path, 1, 2, save={"dpi": 130}, figsize=(13, max(height, 4.5)), layout="constrained") as (
        figure,
        (left, right),
    ):
        figure.suptitle(title)
        for place, row in enumerate(rows):
            left.plot(row["accuracies"], [place] * len(row["accuracies"]), "o", color="C0", alpha=0.6,
                      label="a seed" if place == 0 else None)  # fmt: skip
            left.plot(
                [row["mean"]], [place], "|", color="C0", markersize=14, label="mean" if place == 0 else None
            )
        known = [(row["paper"], place) for place, row in enumerate(rows) if row["paper"] is not None]
        if known:
            left.plot(*zip(*known, strict=True), "D", color="C3", fillstyle="none", label="paper")
        left.set_yticks(range(len(rows)), [f"{row['model']} {row['row']}" for row in rows])
        left.invert_yaxis()
        left.set(xlabel="test accuracy, percent")
        left.grid(axis="x", alpha=0.3)
        left.legend(loc="best", fontsize="small")
        for row in rows:
            if row["curve"]:
                steps, accuracies = zip(*row["curve"], strict=True)
                right.plot(steps, accuracies, linewidth=1, label=row["row"])
        right.set(xlabel="iteration", ylabel="test accuracy, percent")
        right.grid(alpha=0.3)
        if right.lines:
            right.legend(loc="lower right", fontsize="x-small", ncols=2)
