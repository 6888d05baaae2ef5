"""Training curves as pictures: losses, how far they lie apart, accuracies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: Colours and widths of LeNet-5's curves by method: those below are wider.
BY_METHOD = {
    "bp": ("#6b7280", 5.0), "linear": ("#c2410c", 3.2),
    "blelloch": ("#1f5fbf", 1.8), "hybrid": ("#111827", 0.7),
}  # fmt: skip


def smooth(losses: Sequence[float], window: int) -> np.ndarray:
    """Means over the last `window` steps, fewer at the start."""
    sums = np.concatenate([[0.0], np.cumsum(losses)])
    ends = np.arange(1, len(sums))
    starts = np.maximum(0, ends - window)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts))


def draw_means(
    axes: Any, losses: Sequence[float], window: int, *, start: int = 0, scale: float = 1.0, **style: Any
) -> None:
    """`smooth` losses by step, the first of them step start + 1, or with a scale by so many steps."""
    axes.plot(np.arange(start + 1, start + len(losses) + 1) / scale, smooth(losses, window), **style)


def draw_differences(axes: Any, differences: Any, marker: str = ".", **style: Any) -> None:
    """Marks by step, where there is a difference."""
    found = np.asarray(differences)
    steps = np.arange(1, len(found) + 1)
    style = {"markersize": 3, **style}
    axes.plot(steps[found > 0], found[found > 0], marker, **style)


def draw_limit(axes: Any, limit: float, steps: int | None = None) -> None:
    """The line that differences are held to, in the first so many steps or in all."""
    style = {"color": "0.2", "linestyle": "--", "linewidth": 0.8, "label": f"limit {limit:.1e}"}
    if steps is None:
        axes.axhline(limit, **style)
    else:
        axes.plot([1, steps], [limit, limit], **style)


def finish(axes: Sequence[Any], **grid: Any) -> None:
    """Grids, and legends where something is drawn."""
    for one in axes:
        if grid:
            one.grid(**grid)
        if one.get_legend_handles_labels()[0]:
            one.legend(fontsize="small")
