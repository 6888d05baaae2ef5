"""A pipeline's schedules as space-time diagrams: the paper's figure 4, and predicted times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.pipeline.schedules import BACKWARD, FORWARD, UPDATE, WEIGHTS, PipelineSchedule
from bppsa_cupy.pipeline.simulation import Simulation
from bppsa_cupy.tools.pictures.picture_file import picture
from bppsa_cupy.tools.plans.text import time_writer

#: Of batches, in turn, forward and back; and where nothing runs.
FORWARD_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
BACKWARD_COLORS = ("#8cc3e4", "#f3b587", "#86d3bb", "#ecc6dc", "#bfe2f7", "#f7dc9d")
IDLE = "#ececec"
#: Shares of the axis: bars up to these widths have no border, or no number.
THIN, NARROW = 0.002, 0.012
seconds = time_writer({"unit": "seconds"})


def draw_pipeline(facts: Mapping[str, Any], simulations: Sequence[Simulation], path: Path) -> None:
    """Write a picture to `path`: of the schedule `stale` first figure 4, a column a cycle; of each schedule
    the ranks' predicted times, on one axis.

    facts        what `bppsa-plan pipeline --json` tells
    simulations  of its schedules on ranks, of the batches that are drawn

    Bars are coloured by batch, backward ones lighter, updates black; grey is idle. Raises BppsaError as
    `picture` does.
    """
    cycles = next((s.schedule for s in simulations if s.schedule.name == "stale"), None)
    heights = [0.5 * simulation.count + 1.0 for simulation in simulations]
    if cycles is not None:
        heights.insert(0, 0.5 * (2 * cycles.stages - 1) + 1.0)
    size = 14.0, 1.1 + sum(heights)
    options = {"figsize": size, "height_ratios": heights, "squeeze": False, "layout": "constrained"}
    with picture(path, len(heights), 1, save={"dpi": 110}, **options) as (figure, grid):
        axes = list(grid[:, 0])
        ppv = ",".join(map(str, facts["ppv"])) or "none"
        figure.suptitle(
            f"{facts['model']}, cut behind {ppv}: {100 * facts['stale_share']:.1f} % of its weights are "
            f"stale; batches of {facts['batch_size']}, times: {facts['times']}; numbers are of "
            f"{facts['batches']} batches, {simulations[0].schedule.batches} are drawn",
            fontsize=11,
        )
        if cycles is not None:
            _draw_cycles(axes.pop(0), cycles)
        longest = max(simulation.seconds for simulation in simulations)
        for position, (axis, simulation) in enumerate(zip(axes, simulations, strict=True)):
            _draw_times(axis, simulation, facts["schedules"][position], longest)
        axes[-1].set_xlabel("predicted time")
        _add_legend(figure)


def _draw_cycles(axis: Any, schedule: PipelineSchedule) -> None:
    """Figure 4: cycles to the right, accelerators downwards; forward cells tell how many updates their
    weights miss."""
    last = schedule.stages - 1
    _idle(axis, 2 * last + 1, schedule.cycles)
    for action in schedule.actions():
        if action.kind == UPDATE:
            continue
        back = action.kind == BACKWARD
        row = 2 * last - action.stage if back else action.stage
        halves = action.stage == last
        left, width = action.cycle + (0.5 if halves and back else 0.0), 0.5 if halves else 1.0
        _bar(axis, row, left, width, action.batch, back)
        stale = 0 if back else int(schedule.missed_updates(action.stage)[action.batch])
        text = f"{action.batch}" + (f"$_{{-{stale}}}$" if stale else "")
        _label(axis, row, left + width / 2, text, back)
    names = [
        *(f"forward {stage}" for stage in range(last)),
        f"forward, backward {last}",
        *(f"backward {stage}" for stage in reversed(range(last))),
    ]
    axis.set_title(
        f"stale: cycles on {2 * last + 1} accelerators (the paper's figure 4); subscripts: updates that the "
        "weights of a forward stage miss",
        loc="left", fontsize=10,
    )  # fmt: skip
    axis.set_xticks(np.arange(schedule.cycles) + 0.5, [str(cycle) for cycle in range(schedule.cycles)])
    axis.set_xlabel("cycle")
    _frame(axis, names, schedule.cycles)


def _draw_times(axis: Any, simulation: Simulation, facts: Mapping[str, Any], longest: float) -> None:
    """Predicted seconds to the right, ranks downwards."""
    schedule = simulation.schedule
    _idle(axis, simulation.count, simulation.seconds)
    for action, start, end in zip(schedule.actions(), simulation.starts, simulation.ends, strict=True):
        if action.kind == UPDATE:
            axis.barh(action.rank, end - start, left=start, height=0.84, color="#000000", zorder=3)
            continue
        back = action.kind != FORWARD
        border = 0.8 if end - start > THIN * longest else 0.0
        hatch = "///" if action.kind == WEIGHTS else ""
        _bar(axis, action.rank, start, end - start, action.batch, back, border, hatch)
        if end - start > NARROW * longest:
            _label(axis, action.rank, (start + end) / 2, str(action.batch), back)
    ranks = facts["ranks"]
    stale = ", ".join(str(rank["staleness"]) for rank in ranks)
    bubbles = ", ".join(f"{100 * rank['bubble']:.0f}" for rank in ranks)
    micro = f", {schedule.micro} micro-batches" if schedule.micro > 1 else ""
    axis.set_title(
        f"{schedule.name}{micro}: {seconds(facts['seconds_per_batch'])} a batch, speed-up "
        f"{facts['speedup']:.2f}; bubbles {bubbles} %; updates missed {stale}",
        loc="left", fontsize=10,
    )  # fmt: skip
    axis.xaxis.set_major_formatter(lambda value, _: seconds(value) if value else "0")
    _frame(axis, [f"rank {rank}" for rank in range(simulation.count)], longest)


def _idle(axis: Any, rows: int, width: float) -> None:
    axis.barh(range(rows), width, height=0.84, color=IDLE, zorder=0)


def _bar(
    axis: Any,
    row: int,
    left: float,
    width: float,
    batch: int,
    back: bool,
    border: float = 0.8,
    hatch: str = "",
) -> None:
    color = (BACKWARD_COLORS if back else FORWARD_COLORS)[batch % len(FORWARD_COLORS)]
    look = {"color": color, "edgecolor": "white" if border else color, "linewidth": border, "hatch": hatch}
    axis.barh(row, width, left=left, height=0.84, zorder=1, **look)


def _label(axis: Any, row: int, x: float, text: str, back: bool) -> None:
    color = "black" if back else "white"
    axis.text(x, row, text, ha="center", va="center", fontsize=8, color=color, zorder=4)


def _frame(axis: Any, names: Sequence[str], width: float) -> None:
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_xlim(0, width)
    axis.tick_params(length=0, labelsize=9)
    for side in axis.spines.values():
        side.set_visible(False)


def _add_legend(figure: Any) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=FORWARD_COLORS[0], label="forward, coloured by batch"),
        Patch(facecolor=BACKWARD_COLORS[0], label="backward; hatched: by weights, where these wait"),
        Patch(facecolor="#000000", label="update"),
        Patch(facecolor=IDLE, label="idle"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
