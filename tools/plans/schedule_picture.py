"""A schedule as a picture, in the manner of the paper's figure 3."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bppsa_cupy.plan import Chain, Schedule, Segment
from bppsa_cupy.plan.schedule import up_sweep_levels
from bppsa_cupy.tools.pictures.picture_file import picture

COLORS = {
    "matrix": "#3b76c4",
    "vector": "#ee8a2e",
    "identity": "#4aa564",
    "dead": "#bdbdbd",
    "move": "#e3b505",
    "stay": "#e4e4e4",
}


class Edge(NamedTuple):
    """A line from one row of the picture to the next: style "mm", "mv", "move" or "dead"."""

    start: int
    end: int
    style: str


class Row(NamedTuple):
    """The array before a level (None is the identity), and the lines from it to the next row."""

    label: str
    array: tuple[Segment | None, ...]
    edges: tuple[Edge, ...]


def in_place_rows(n: int, levels: int) -> list[Row]:
    """Algorithm 1 with `levels` up-sweep levels, in place: one row a level, a last one for the result.

    The serial scan in the middle runs over the blocks' last columns; its results then move on by a
    block, and the identity takes the first one's place.
    """
    array: list[Segment | None] = [(k, k + 1) for k in range(n + 1)]
    rows: list[Row] = []

    def level(pairs: list[tuple[int, int]], number: int, moves: bool) -> None:
        """l ⋄ r goes to column r for each pair; in the down-sweep (`moves`), r ⋄ l, and r moves to l."""
        before, edges = tuple(array), []
        for left, right in pairs:
            first, second = (before[right], before[left]) if moves else (before[left], before[right])
            if moves:
                array[left] = before[right]
                edges.append(Edge(right, left, "move"))
            if first is None:
                array[right] = second
                edges.append(Edge(left, right, "move"))
                continue
            assert second is not None and first[1] == second[0]
            array[right] = first[0], second[1]
            style = "dead" if second[1] > n else "mv" if first[0] == 0 else "mm"
            edges += [Edge(left, right, style), Edge(right, right, style)]
        rows.append(Row(f"L{number}", before, tuple(edges)))

    def neighbours(d: int) -> list[tuple[int, int]]:
        """The last columns of each two blocks of 2**d elements that are joined."""
        starts = range(0, n - 2**d + 1, 2 ** (d + 1))
        return [(i + 2**d - 1, min(i + 2 ** (d + 1) - 1, n)) for i in starts]

    for d in range(levels):
        level(neighbours(d), d, False)
    block = 2**levels
    ends = [min(start + block - 1, n) for start in range(0, n + 1, block)]
    middle = [(split - 1, split + block - 1) for split in range(block, n - block + 1, block)]
    for number, pair in enumerate(middle, levels):
        level([pair], number, False)
    before = tuple(array)
    array[ends[0]] = None
    for left, right in pairwise(ends):
        array[right] = before[left]
    shifts = tuple(Edge(a, b, "move") for a, b in pairwise(ends))
    rows.append(Row("moves" if middle or not levels else f"L{levels}", before, shifts))
    start = levels + max(len(middle), 1)
    for d in reversed(range(levels)):
        level(neighbours(d), start + levels - 1 - d, True)
    rows.append(Row("result", tuple(array), ()))
    return rows


def draw_schedule(chain: Chain, schedule: Schedule, path: Path) -> None:
    """Write a picture of `schedule` to `path`, its columns named after the elements of `chain`.

    Columns are array elements, rows levels. Blue squares are matrices, orange ones vectors, green ones
    the identity; blue lines matrix–matrix products, orange ones matrix–vector products, yellow dashed
    ones moves that are only logical; what is never read is grey. Raises BppsaError as `picture` does.
    """
    n = schedule.n
    levels = up_sweep_levels(n) if schedule.name == "blelloch" else schedule.levels or 0
    rows = in_place_rows(n, levels)
    height = len(rows)
    size = min(2.2 + 0.62 * (n + 1), 60), min(2.8 + 0.8 * height, 60)
    with picture(path, save={"dpi": 110, "bbox_inches": "tight"}, figsize=size) as (_, axes):
        _draw_in_place(axes, rows, n)
        kinds = Counter(step.kind for step in schedule.steps)
        crossed = f", {kinds['vjp']} VJPs" if kinds["vjp"] else ""
        title = f"{schedule.label}: n = {n}, {kinds['mm']} mm, {kinds['mv']} mv{crossed}"
        axes.set_title(title, loc="left", pad=12)
        top = ["gradient", *(element.name for element in chain.elements)]
        axes.set_xticks(range(n + 1), [f"$a_{{{k}}}$  {label}" for k, label in enumerate(top)], rotation=90)
        axes.xaxis.tick_top()
        axes.set_yticks(range(height), [""] * height)
        axes.tick_params(length=0, labelsize=9)
        axes.set_xlim(-0.8, n + 0.6)
        axes.set_ylim(height - 0.1, -0.5)
        for side in axes.spines.values():
            side.set_visible(False)
        _add_legend(axes)


def _draw_in_place(axes: Any, rows: list[Row], n: int) -> None:
    for number, row in enumerate(rows):
        _draw_row(axes, number, row, n, number + 1 < len(rows))
        offset = 0.0 if row.label == "result" else 0.5
        axes.text(-0.85, number + offset, row.label, ha="right", va="center", fontsize=10)
    for k in range(n + 1):
        result = "I" if k == 0 else f"$v({k})$"
        axes.text(k, len(rows) - 0.62, result, ha="center", va="top", fontsize=8)


def _draw_row(axes: Any, number: int, row: Row, n: int, has_next: bool) -> None:
    if has_next:
        changed = {edge.end for edge in row.edges}
        for column in set(range(n + 1)) - changed:
            axes.plot([column, column], [number, number + 1], color=COLORS["stay"], linewidth=1, zorder=1)
    for edge in row.edges:
        color = COLORS[{"mm": "matrix", "mv": "vector"}.get(edge.style, edge.style)]
        style = "--" if edge.style == "move" else "-"
        line = [edge.start, edge.end], [number, number + 1]
        axes.plot(*line, color=color, linestyle=style, linewidth=1.8, zorder=2)
    for kind in ("matrix", "vector", "identity", "dead"):
        columns = [column for column, segment in enumerate(row.array) if _kind(segment, n) == kind]
        axes.plot(columns, [number] * len(columns), "s", color=COLORS[kind], markersize=13, zorder=3)


def _kind(segment: Segment | None, n: int) -> str:
    if segment is None:
        return "identity"
    if segment[1] > n and segment[1] - segment[0] > 1:
        return "dead"
    return "vector" if segment[0] == 0 else "matrix"


def _add_legend(axes: Any) -> None:
    from matplotlib.lines import Line2D

    squares = {"matrix": "matrix", "vector": "vector", "identity": "identity", "dead": "never read"}
    lines = {"matrix": "matrix × matrix", "vector": "matrix × vector", "move": "logical move"}
    handles: list[Any] = [
        Line2D([], [], linestyle="", marker="s", markersize=10, color=COLORS[kind], label=label)
        for kind, label in squares.items()
    ] + [
        Line2D([], [], linestyle="--" if kind == "move" else "-", color=COLORS[kind], label=label)
        for kind, label in lines.items()
    ]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=9)
