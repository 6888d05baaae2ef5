"""When the actions of a schedule run, from the times of the stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.pipeline.schedules import BACKWARD, CYCLE, FORWARD, KIND, RANK, STAGE, PipelineSchedule
from bppsa_cupy.pipeline.times import StageTimes


@dataclass(frozen=True)
class Simulation:
    """When a schedule's actions run.

    places  (actions,) int64: the rank, or the accelerator, of each
    starts, ends  (actions,) seconds, in the order of the schedule's table
    count   of ranks or accelerators
    """

    schedule: PipelineSchedule
    places: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    count: int

    @property
    def seconds(self) -> float:
        """From the first action to the end of the last."""
        return float(self.ends.max(initial=0.0))

    @property
    def seconds_per_batch(self) -> float:
        return self.seconds / self.schedule.batches if self.schedule.batches else 0.0

    @property
    def busy(self) -> np.ndarray:
        """(count,) seconds in which each rank or accelerator works."""
        return np.bincount(self.places, self.ends - self.starts, self.count)

    @property
    def bubbles(self) -> np.ndarray:
        """(count,) the share of the time in which it does not."""
        return 1 - self.busy / self.seconds if self.seconds else np.zeros(self.count)


def simulate(
    schedule: PipelineSchedule, times: StageTimes, messages: Sequence[float] | None = None
) -> Simulation:
    """The schedule on its ranks: each runs its actions in their order, as soon as what they take is there.

    times     of an action each
    messages  (K,) seconds that a parcel travels between a stage and the next, either way, while its sender
              goes on; by default none

    Raises BppsaError where the times are of another number of stages.
    """
    _check(schedule, times)
    travel = [0.0] * (schedule.stages - 1) if messages is None else list(messages)
    rows = schedule.table.tolist()
    starts, ends = np.zeros(len(rows)), np.zeros(len(rows))
    free = [0.0] * schedule.ranks
    there: dict[tuple[int, int, int, int], float] = {}
    seconds = times.by_kind(split=schedule.kind.splits)
    for position, (_, rank, kind, stage, batch, micro) in enumerate(rows):
        start = max(free[rank], there.pop((kind, stage, batch, micro), 0.0))
        free[rank] = end = start + seconds[kind][stage]
        starts[position], ends[position] = start, end
        if kind == FORWARD and stage + 1 < schedule.stages:
            there[kind, stage + 1, batch, micro] = end + travel[stage]
        elif kind == BACKWARD and stage > 0:
            there[kind, stage - 1, batch, micro] = start + times.sent[stage] + travel[stage - 1]
    return Simulation(schedule, schedule.table[:, RANK], starts, ends, schedule.ranks)


def simulate_accelerators(schedule: PipelineSchedule, times: StageTimes) -> Simulation:
    """The schedule `stale` on the paper's 2 K + 1 accelerators (figure 4): each forward and each backward
    stage has its own, and the last forward stage shares one with the first backward stage. A cycle takes
    as long as the accelerator with the most work.

    Raises BppsaError for another schedule, whose ranks are one a stage.
    """
    _check(schedule, times)
    if schedule.name != "stale":
        raise BppsaError(
            f"the schedule {schedule.name!r} was asked for on 2 K + 1 accelerators: these are of 'stale'"
        )
    table, last = schedule.table, schedule.stages - 1
    places = np.where(table[:, KIND] == FORWARD, table[:, STAGE], 2 * last - table[:, STAGE])
    seconds = np.array(times.by_kind())[table[:, KIND], table[:, STAGE]]
    cells = table[:, CYCLE] * (2 * last + 1) + places  # a cycle of an accelerator
    before, sums = np.zeros(len(table)), np.zeros(schedule.cycles * (2 * last + 1))
    for position, cell in enumerate(cells.tolist()):
        before[position] = sums[cell]
        sums[cell] += seconds[position]
    lengths = sums.reshape(schedule.cycles, -1).max(axis=1, initial=0.0)
    begins = np.concatenate([[0.0], np.cumsum(lengths)])[:-1]
    starts = begins[table[:, CYCLE]] + before
    return Simulation(schedule, places, starts, starts + seconds, 2 * last + 1)


def _check(schedule: PipelineSchedule, times: StageTimes) -> None:
    if times.stages != schedule.stages:
        raise BppsaError(
            f"the times are of {times.stages} stages and the schedule has {schedule.stages}: give one time a "
            "stage"
        )
