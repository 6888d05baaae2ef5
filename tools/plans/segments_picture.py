"""A computed schedule as a picture: a bar for every segment it computes, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bppsa_cupy.plan import Schedule, Step

COLORS = {
    "matrix": "#3b76c4",
    "vector": "#ee8a2e",
    "identity": "#4aa564",
    "dead": "#bdbdbd",
    "move": "#e3b505",
    "stay": "#e4e4e4",
}


def lanes(steps: Sequence[Step]) -> list[list[Step]]:
    """The steps of a level in rows without overlaps, each step in the first row that has room."""
    rows: list[list[Step]] = []
    for step in sorted(steps, key=lambda step: (step.begin, step.end)):
        for row in rows:
            if row[-1].end <= step.begin:
                row.append(step)
                break
        else:
            rows.append([step])
    return rows


def segment_rows(schedule: Schedule) -> list[tuple[str, list[Step]]]:
    """Label and steps of every row of the picture, from the first level to the last."""
    return [
        (f"L{level}" if first else "", row)
        for level, steps in enumerate(schedule.by_level())
        for first, row in zip([True] + [False] * len(steps), lanes(steps), strict=False)
    ]


def draw_segments(axes: Any, schedule: Schedule) -> None:
    """Draw on matplotlib's `axes`.

    The bar of [begin, end) covers its elements' columns, blue for a matrix and orange for a vector; a
    white line is where it was put together. The first row holds the inputs.
    """
    rows = segment_rows(schedule)
    for k in range(schedule.n + 1):
        _bar(axes, 0, k, k + 1, "matrix" if k else "vector")
    for number, (label, steps) in enumerate(rows, 1):
        if label:
            axes.axhline(number - 0.5, color=COLORS["stay"], linewidth=0.8, zorder=0)
            axes.text(-0.85, number, label, ha="right", va="center", fontsize=10)
        for step in steps:
            _bar(axes, number, step.begin, step.end, "matrix" if step.begin else "vector")
            axes.plot([step.split - 0.5] * 2, [number - 0.3, number + 0.3], color="white", linewidth=1.6)
            name = f"v({step.end})" if step.begin == 0 else f"M({step.begin}, {step.end})"
            longer = step.left if step.split - step.begin > step.end - step.split else step.right
            axes.text(
                sum(longer) / 2 - 0.5, number, name, ha="center", va="center", fontsize=7, color="white"
            )


def _bar(axes: Any, row: int, begin: int, end: int, kind: str) -> None:
    axes.barh(row, end - begin - 0.12, left=begin - 0.44, height=0.6, color=COLORS[kind], zorder=1)
