"""Checking a schedule that was read."""

from __future__ import annotations

import numpy as np

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.schedule import KINDS, Schedule


def check_schedule(schedule: Schedule) -> None:
    """Raise PlanError, naming the step, where a law of `Schedule` is broken (dead products are allowed)."""
    n, makers = schedule.n, schedule.makers
    level, begin, split, end, kind, worker = schedule.table.T
    if not np.isin(kind, range(len(KINDS))).all():
        raise PlanError(f"schedule {schedule.name}: the kind of a step, its fifth number, is 0 or 1")
    position = np.arange(level.size)
    twice = np.ones(level.size, bool)
    twice[np.unique(schedule.out, axis=0, return_index=True)[1]] = False
    is_input = np.stack([split - begin, end - split], 1) == 1
    is_there = (makers < position[:, None]) & (level[makers] < level[:, None]) if level.size else is_input
    faults = {
        f"its segment is none of a scan over a_0, …, a_{n}": ~(
            (0 <= begin) & (begin < split) & (split < end) & (end <= n + 1)
        ),
        "its kind does not fit its segment": kind != (begin != 0),
        "levels must not decrease, nor workers be negative": (np.diff(level, prepend=0) < 0) | (worker < 0),
        "its segment is there already": twice,
        "an operand is not there before its level": ~np.where(makers < 0, is_input, is_there).all(1),
    }
    crossed = np.array(schedule.vjps, np.int64)
    if crossed.size and not (1 <= crossed[0] and crossed[-1] <= n and (np.diff(crossed) > 0).all()):
        raise PlanError(
            f"schedule {schedule.name} crosses {list(schedule.vjps)} by VJPs: of a_1, …, a_{n}, rising"
        )
    reads_crossed = is_input & np.isin(np.stack([begin, split], 1), crossed)
    faults["it multiplies what is crossed by a VJP"] = (kind != 0) & reads_crossed.any(1)
    broken = np.array(list(faults.values()))
    if broken.any():
        first = int(broken.any(0).argmax())
        fault = list(faults)[int(broken[:, first].argmax())]
        raise PlanError(f"schedule {schedule.name}: {schedule.step(first)} is not legal: {fault}")
    made = np.unique(end[begin == 0])
    gaps = np.flatnonzero(made != np.arange(2, made.size + 2))
    missing = int(gaps[0] if gaps.size else made.size) + 2
    if missing <= n:
        raise PlanError(f"schedule {schedule.name} does not compute v({missing})")
