"""A schedule over ranks as a picture: a bar for every segment, coloured by its rank, and the messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.plan import Chain, Message, RankSchedule, Segment
from bppsa_cupy.system.units import in_bytes
from bppsa_cupy.tools.pictures.picture_file import picture
from bppsa_cupy.tools.plans.ranks import sent_in_all, sent_text
from bppsa_cupy.tools.plans.segments_picture import COLORS, segment_rows

#: Of the ranks, in turn: Okabe and Ito's, which differ for the colour-blind too.
RANK_COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8f8f8f", "#b5a90f")
#: More messages than this are drawn without their bytes.
LABELLED = 60


def draw_placement(chain: Chain, placement: RankSchedule, amounts: np.ndarray, path: Path) -> None:
    """Write a picture of a schedule over ranks to `path`.

    Columns are array elements, rows levels, their steps side by side or below each other. A bar has the
    colour of the rank that computes it, a matrix is hatched; the first row holds the inputs on their owners.
    An arrow is a message: from the segment to the step that reads it, or to the column of the owner that
    needs it for its parameters. `amounts` (messages,) are bytes. Raises BppsaError as `picture` does.
    """
    schedule, owners = placement.schedule, placement.owners.tolist()
    rows = segment_rows(schedule)
    n, height = schedule.n, len(rows) + 1
    size = min(3.4 + 0.75 * (n + 1), 60), min(3.2 + 0.8 * height, 60)
    with picture(path, save={"dpi": 110, "bbox_inches": "tight"}, figsize=size) as (_, axes):
        for k, owner in enumerate(owners):
            _bar(axes, 0, (k, k + 1), owner, f"$a_{{{k}}}$")
        row_of: dict[Segment, int] = {(k, k + 1): 0 for k in range(n + 1)}
        for number, (label, steps) in enumerate(rows, 1):
            if label:
                axes.axhline(number - 0.5, color=COLORS["stay"], linewidth=0.8, zorder=0)
                axes.text(-0.85, number, label, ha="right", va="center", fontsize=10)
            for step in steps:
                row_of[step.out] = number
                name = f"v({step.end})" if step.begin == 0 else f"M({step.begin}, {step.end})"
                _bar(axes, number, step.out, step.worker, name)
                axes.plot([step.split - 0.5] * 2, [number - 0.3, number + 0.3], color="white", linewidth=1.6)
        messages = list(placement.messages(amounts))
        _draw_messages(axes, placement, messages, row_of)
        for border in np.flatnonzero(np.diff(placement.owners)).tolist():
            axes.axvline(border + 0.5, color="#555555", linewidth=0.9, linestyle=":", zorder=0)
        sent = sent_text(sent_in_all(placement, amounts))
        axes.set_title(f"{schedule.label} over {placement.ranks} ranks; sent: {sent}", loc="left", pad=12)
        top = ["gradient", *(element.name for element in chain.elements)]
        axes.set_xticks(range(n + 1), [f"$a_{{{k}}}$  {label}" for k, label in enumerate(top)], rotation=90)
        axes.xaxis.tick_top()
        axes.set_yticks([])
        axes.tick_params(length=0, labelsize=9)
        axes.set_xlim(-0.8, n + 1.0)
        axes.set_ylim(height - 0.3, -0.5)
        for side in axes.spines.values():
            side.set_visible(False)
        _add_legend(axes, placement)


def _bar(axes: Any, row: int, segment: Segment, rank: int, name: str) -> None:
    begin, end = segment
    color = RANK_COLORS[rank % len(RANK_COLORS)]
    look = {"color": color, "hatch": "////" if begin else None, "edgecolor": "#ffffff55", "linewidth": 0}
    axes.barh(row, end - begin - 0.12, left=begin - 0.44, height=0.6, zorder=1, **look)
    box = {"facecolor": color, "edgecolor": "none", "pad": 0.8}
    middle = (begin + end) / 2 - 0.5
    axes.text(middle, row, name, ha="center", va="center", fontsize=7, color="white", bbox=box, zorder=3)


def _draw_messages(
    axes: Any, placement: RankSchedule, messages: Sequence[Message], row_of: dict[Segment, int]
) -> None:
    """An arrow for each message, to the first step that reads it on its target."""
    readers: dict[tuple[Segment, int], tuple[float, float]] = {}
    for step in placement.schedule.steps:
        readers.setdefault((step.left, step.worker), (step.split - 0.5, row_of[step.out] - 0.3))
    for message in messages:
        row, end = row_of[message.segment], message.segment[1]
        start = end - 0.6, row + 0.3
        read = readers.get((message.segment, message.target))
        target = read or (float(end), row + 0.5)
        color = "#b00020" if message.segment[0] else "#222222"
        style = {"arrowstyle": "-|>", "color": color, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", xy=target, xytext=start, arrowprops=style, zorder=4)
        if len(messages) <= LABELLED:
            middle = (start[0] + target[0]) / 2 + 0.1, (start[1] + target[1]) / 2
            x, y = middle if read else (target[0] + 0.1, target[1])
            axes.text(
                x,
                y,
                in_bytes(message.bytes),
                fontsize=6.5,
                color=color,
                ha="left",
                va="center",
                zorder=5,
            )


def _add_legend(axes: Any, placement: RankSchedule) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    used = sorted(set(placement.owners.tolist()))
    shown = used if len(used) <= len(RANK_COLORS) else used[: len(RANK_COLORS)]
    handles: list[Any] = [Patch(color=RANK_COLORS[r % len(RANK_COLORS)], label=f"rank {r}") for r in shown]
    handles.append(Patch(facecolor="#8f8f8f", hatch="////", edgecolor="white", label="a matrix"))
    handles += [
        Line2D([], [], color="#222222", marker=">", label="message: a vector"),
        Line2D([], [], color="#b00020", marker=">", label="message: a matrix"),
    ]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=9)
