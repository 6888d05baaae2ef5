"""The list scheduler: which worker runs which step, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.cost import loops
from bppsa_cupy.plan.schedule import Schedule


class Timetable(NamedTuple):
    """When steps run.

    starts   (steps,) seconds
    workers  (steps,) int64, which of them runs each step
    seconds  until the last step ends
    critical_path  seconds of the longest chain of steps each of which needs the one before
    """

    starts: np.ndarray
    workers: np.ndarray
    seconds: float
    critical_path: float


def timetable(operands: np.ndarray, segments: np.ndarray, seconds: np.ndarray, workers: int) -> Timetable:
    """Run steps on workers: of those that are ready the one with the longest path after it goes first.

    operands  (steps, 2) positions of the steps whose results a step reads, earlier ones; -1 for an input
    segments  (steps, 2) that the steps compute
    seconds   (steps,) of each step

    Deterministic: ties go to the segment that ends first, then to the one that begins first, and to the
    lower worker; the order of the steps plays no part. A step starts when its operands are there. Raises
    PlanError below one worker.
    """
    if workers < 1:
        raise PlanError(f"{workers} workers were asked for: a schedule takes at least 1")
    rank = segments[:, 1] * (segments.max(initial=0) + 1) + segments[:, 0]
    starts, assigned, lengths = np.zeros(rank.size), np.zeros(rank.size, np.int64), np.zeros(2)
    loops.assign(operands, rank, seconds, workers, starts, assigned, lengths)
    return Timetable(starts, assigned, float(lengths[0]), float(lengths[1]))


def list_schedule(
    schedule: Schedule, seconds: Sequence[float] | np.ndarray, workers: int
) -> tuple[Schedule, Timetable]:
    """The schedule with the workers of its `timetable`, and that; seconds are its steps', in their order."""
    times = timetable(schedule.makers, schedule.out, np.array(seconds, np.float64), workers)
    return schedule.with_workers(times.workers), times
