"""A pipeline's schedules as space-time diagrams by cycles, of the stale one the paper's figure 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.pipeline.schedules import FORWARD, UPDATE, PipelineSchedule, staleness
from bppsa_cupy.tools.pictures.picture_file import picture

#: Of batches, in turn, forward and back; and where nothing runs.
FORWARD_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
BACKWARD_COLORS = ("#8cc3e4", "#f3b587", "#86d3bb", "#ecc6dc", "#bfe2f7", "#f7dc9d")
IDLE = "#ececec"


def draw_pipeline(facts: Mapping[str, Any], schedules: Sequence[PipelineSchedule], path: Path) -> None:
    """Draw the actions of the stages of each schedule, a column per cycle, into `path`.

    `facts` are those that `bppsa-plan pipeline --json` prints. Bars are coloured by batch, backward bars
    lighter; grey is idle. Forward bars of the schedule `stale` are
    drawn on the paper's 2 K + 1 accelerators. Raises BppsaError as `picture` does.
    """
    heights = [0.5 * _rows(schedule) + 1.0 for schedule in schedules]
    size = 14.0, 1.1 + sum(heights)
    options = {"figsize": size, "height_ratios": heights, "squeeze": False, "layout": "constrained"}
    with picture(path, len(heights), 1, save={"dpi": 110}, **options) as (figure, grid):
        ppv = ",".join(map(str, facts["ppv"])) or "none"
        figure.suptitle(
            f"{facts['model']}, cut after {ppv}: {100 * facts['stale_share']:.1f} % of weights are stale",
            fontsize=11,
        )
        for axis, schedule in zip(grid[:, 0], schedules, strict=True):
            _draw_cycles(axis, schedule)
        _add_legend(figure)


def _rows(schedule: PipelineSchedule) -> int:
    """The paper's accelerators of the schedule `stale`, the stages of others."""
    return 2 * schedule.stages - 1 if schedule.name == "stale" else schedule.stages


def _draw_cycles(axis: Any, schedule: PipelineSchedule) -> None:
    """Cycles to the right, stages or accelerators downwards; forward bars show how many updates their weights
    miss."""
    last, rows = schedule.stages - 1, _rows(schedule)
    apart = schedule.name == "stale"
    axis.barh(range(rows), schedule.cycles, height=0.84, color=IDLE, zorder=0)
    actions = [action for action in schedule.actions() if action.kind != UPDATE]
    cells: dict[tuple[int, int], list[Any]] = {}
    for action in actions:
        back = action.kind != FORWARD
        row = action.stage if not apart else 2 * last - action.stage if back else action.stage
        cells.setdefault((row, action.cycle), []).append(action)
    for (row, cycle), shared in cells.items():
        width = 1 / len(shared)
        for place, action in enumerate(shared):
            back, left = action.kind != FORWARD, cycle + place * width
            color = (BACKWARD_COLORS if back else FORWARD_COLORS)[action.batch % len(FORWARD_COLORS)]
            look = {"color": color, "edgecolor": "white", "linewidth": 0.8}
            axis.barh(row, width, left=left, height=0.84, zorder=1, **look)
            degree = staleness(schedule.name, schedule.stages, action.stage)
            stale = 0 if back else min(action.batch, degree)
            text = f"{action.batch}" + (f"$_{{-{stale}}}$" if stale else "")
            label = {"ha": "center", "va": "center", "fontsize": 8, "color": "black" if back else "white"}
            axis.text(left + width / 2, row, text, zorder=4, **label)
    names = [f"stage {stage}" for stage in range(rows)]
    if apart:
        names = [
            *(f"forward {stage}" for stage in range(last)),
            f"forward, backward {last}",
            *(f"backward {stage}" for stage in reversed(range(last))),
        ]
    micro = f", {schedule.micro} micro-batches" if schedule.micro > 1 else ""
    title = f"{schedule.name}{micro}; subscripts: updates that the weights miss"
    axis.set_title(title, loc="left", fontsize=10)
    axis.set_xticks(np.arange(schedule.cycles) + 0.5, [str(cycle) for cycle in range(schedule.cycles)])
    axis.set_xlabel("cycle")
    axis.set_yticks(range(rows), names)
    axis.set_ylim(rows - 0.5, -0.5)
    axis.set_xlim(0, schedule.cycles)
    axis.tick_params(length=0, labelsize=9)
    for side in axis.spines.values():
        side.set_visible(False)


def _add_legend(figure: Any) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=FORWARD_COLORS[0], label="forward, coloured by batch"),
        Patch(facecolor=BACKWARD_COLORS[0], label="backward"),
        Patch(facecolor=IDLE, label="idle"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
