"""Figure 10 of the paper: FLOP of each step against what it would be without sparsity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bppsa_cupy.errors import PlanError
from bppsa_cupy.tools.pictures.picture_file import picture

#: Color and marker of each kind of step.
STYLES = {"mv": ("tab:blue", "o"), "mm": ("tab:orange", "s"), "bp": ("tab:green", "o")}
LABELS = {"mv": "matrix × vector", "mm": "matrix × matrix", "bp": "gradient operator of bp"}


def draw_flops(facts: Mapping[str, Any], path: Path) -> None:
    """Write the picture of `flops.flops`'s answer: a row a network, a column a schedule.

    Filled marks are steps on the critical path, with their levels unless all steps are; hollow ones are
    off it. Steps of no FLOP do not show on a logarithmic axis and are left out. Raises PlanError where
    there is no step, and BppsaError as `picture` does.
    """
    networks = facts["networks"]
    names = list(dict.fromkeys(s["name"] for n in networks for c in n["chains"] for s in c["schedules"]))
    if not names:
        raise PlanError("the plan has no chain, and so no step to draw")
    size = 1.2 + 3.7 * len(names), 1.5 + 3.6 * len(networks)
    options = {"figsize": size, "layout": "constrained", "sharex": True, "sharey": True, "squeeze": False}
    with picture(path, len(networks), len(names), save={"dpi": 120}, **options) as (figure, grid):
        for row, network in zip(grid, networks, strict=True):
            for axes, name in zip(row, names, strict=True):
                _draw_panel(axes, network, name)
                axes.set_title(f"{name}, {network['network']} network", fontsize=10)
            row[0].set_ylabel("FLOP of one sample")
        for axes in grid[-1]:
            axes.set_xlabel("FLOP if the Jacobians were dense")
        figure.legend(handles=_handles(), loc="outside lower center", ncols=5, frameon=False, fontsize=9)


def _draw_panel(axes: Any, network: Mapping[str, Any], name: str) -> None:
    axes.set(xscale="log", yscale="log")
    axes.grid(True, linewidth=0.3, alpha=0.6)
    levels: dict[tuple[int, int], list[str]] = {}
    points = list(_points(network, name))
    serial = all(critical for kind, _, critical, _ in points if kind != "bp")
    for kind, point, critical, level in points:
        color, marker = STYLES[kind]
        face = color if critical else "none"
        size = 8 if kind == "bp" else 5.5
        axes.plot(*point, marker, color=color, markerfacecolor=face, markersize=size, alpha=0.8)
        if critical and not serial:
            levels.setdefault(point, []).append(level)
    for turn, (point, labels) in enumerate(sorted(levels.items())):
        # Neighbours' labels go above and below by turns.
        offset = (0, 5) if turn % 2 == 0 else (0, -12)
        axes.annotate(
            _short(labels), point, textcoords="offset points", xytext=offset, ha="center", fontsize=7
        )


def _points(network: Mapping[str, Any], name: str) -> Iterator[tuple[str, tuple[int, int], bool, str]]:
    """Kind, (dense FLOP, FLOP), whether on the critical path, and level of each mark of a panel."""
    for chain in network["chains"]:
        for operator in chain["baseline"]:
            if operator["flop"]:
                yield "bp", (operator["dense_flop"], operator["flop"]), False, ""
        for schedule in chain["schedules"]:
            for step in schedule["steps"] if schedule["name"] == name else ():
                if step["flop"]:
                    point = step["dense_flop"], step["flop"]
                    yield step["kind"], point, step["critical"], f"L{step['level']}"


def _short(labels: list[str]) -> str:
    """The levels of one mark; the first and the last where there are many."""
    distinct = list(dict.fromkeys(labels))
    return ",".join(distinct) if len(distinct) < 3 else f"{distinct[0]}…{distinct[-1]}"


def _handles() -> list[Any]:
    from matplotlib.lines import Line2D

    handles = []
    for kind, critical in (("mv", True), ("mv", False), ("mm", True), ("mm", False), ("bp", False)):
        color, marker = STYLES[kind]
        face = color if critical else "none"
        label = LABELS[kind] + (", critical" if critical else "")
        handles.append(
            Line2D([], [], linestyle="", marker=marker, color=color, markerfacecolor=face, label=label)
        )
    return handles
