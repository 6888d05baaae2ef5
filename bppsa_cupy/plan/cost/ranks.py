"""What a schedule over ranks costs: when its steps run, and what its messages hold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bppsa_cupy.plan.cost import loops
from bppsa_cupy.plan.cost_model import Link
from bppsa_cupy.plan.partition import RankSchedule
from bppsa_cupy.plan.schedule import BEGIN, END, WORKER
from bppsa_cupy.plan.sizes import ChainSizes


class RankTimes(NamedTuple):
    """When a schedule over ranks runs.

    ends     (steps,) seconds
    free     (ranks,) when each rank has run its last step and has the vectors it needs
    seconds  until the last of them
    """

    ends: np.ndarray
    free: np.ndarray
    seconds: float


def message_bytes(sizes: ChainSizes, placement: RankSchedule, batch_size: int, itemsize: int) -> np.ndarray:
    """(messages,) the bytes of each message's values."""
    return sizes.values_sizes(placement.sent[:, 1:3], batch_size) * itemsize


def rank_times(
    sizes: ChainSizes,
    placement: RankSchedule,
    seconds: np.ndarray,
    link: Link,
    batch_size: int,
    itemsize: int,
) -> RankTimes:
    """Run the steps, `seconds` (steps,) each, by rank in the schedule's order, as `RankScan` does.

    A step starts when its rank is free and its left operand is there; a message takes its time from the end
    of the step that made it, and keeps neither rank busy.
    """
    schedule, owners = placement.schedule, placement.owners
    table = schedule.table
    travel = np.zeros(len(table))
    moving = placement.travels
    travel[moving] = link.seconds(sizes.values_sizes(schedule.left[moving], batch_size) * itemsize)
    ends, free = np.zeros(len(table)), np.zeros(placement.ranks)
    loops.run_in_order(schedule.makers, table[:, WORKER].copy(), seconds, travel, free, ends)
    made = np.zeros(schedule.n + 2)
    vectors = table[:, BEGIN] == 0
    made[table[vectors, END]] = ends[vectors]
    crossing = np.flatnonzero(owners[:-1] != owners[1:])
    lengths = sizes.chain.lengths[crossing + 1]
    arrivals = made[crossing + 1] + link.seconds(lengths * batch_size * itemsize)
    np.maximum.at(free, owners[crossing + 1], arrivals)
    return RankTimes(ends, free, float(free.max(initial=0.0)))
