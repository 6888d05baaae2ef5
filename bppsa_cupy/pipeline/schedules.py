"""Pipeline schedules: which rank goes forward or back through which stage on which batch, and when it updates
the stage's parameters. Plain integers, made without a device.

Stages are numbered from 0 here; the paper's stage i is stage i − 1. There are K + 1 of them with K cuts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.errors import BppsaError

#: What an action does.
FORWARD, BACKWARD, UPDATE = 0, 1, 2
KINDS = ("forward", "backward", "update")
#: Columns of a schedule's table.
CYCLE, RANK, KIND, STAGE, BATCH, MICRO = range(6)


@dataclass(frozen=True)
class ScheduleKind:
    """What schedules of one name have in common.

    summary   what it does, in a line
    micro     whether a batch is cut into micro-batches, whose gradients are one update
    stale     whether forward passes miss updates, and the backward pass takes the parameters of its own time
    stashes   whether the backward pass takes the parameters of its forward pass, of which copies are kept
    """

    summary: str
    micro: bool = False
    stale: bool = False
    stashes: bool = False

    @property
    def overlaps(self) -> bool:
        """Whether several batches are in the pipeline at once, so that stages are at different steps."""
        return self.stale or self.stashes


#: The schedules there are, by name.
SCHEDULES = {
    "none": ScheduleKind("one batch at a time, each rank waiting for the others"),
    "stale": ScheduleKind(
        "a forward and a backward stage a cycle on every rank, with stale weights (the paper's section 3)",
        stale=True,
    ),
    "gpipe": ScheduleKind("micro-batches, all forward passes before the backward ones", micro=True),
    "1f1b": ScheduleKind("micro-batches, forward and backward in turn", micro=True),
    "pipedream": ScheduleKind(
        "batches, forward and backward in turn, at the weights of the forward pass", stashes=True
    ),
    "stale-1f1b": ScheduleKind("batches, forward and backward in turn, with stale weights", stale=True),
}


class Action(NamedTuple):
    """A row of a schedule's table.

    cycle  actions of one rank in one cycle follow each other; what a rank sends is there in a later cycle
    rank   which rank acts: the one of the stage
    kind   FORWARD, BACKWARD or UPDATE
    stage  of which stage
    batch  of the batches that are run, from 0
    micro  of the batch's micro-batches; 0 of an update
    """

    cycle: int
    rank: int
    kind: int
    stage: int
    batch: int
    micro: int = 0


@dataclass(frozen=True, eq=False)
class PipelineSchedule:
    """A number of batches through a number of stages, from an empty pipeline to an empty one.

    name     one of SCHEDULES
    stages   K + 1
    batches  that go through
    micro    micro-batches of a batch
    table    (actions, 6) int64: cycle, rank, kind, stage, batch, micro; in an order in which one process can
             run them, and each rank its own

    Laws: every micro-batch goes once forward and once back through each stage, and after the last one of
    a batch the stage is updated, in the order of the batches. What an action takes from another stage was
    made in an earlier cycle.
    """

    name: str
    stages: int
    batches: int
    micro: int
    table: np.ndarray

    @property
    def kind(self) -> ScheduleKind:
        return SCHEDULES[self.name]

    @property
    def cycles(self) -> int:
        """From the first action to the last."""
        return int(self.table[-1, CYCLE]) + 1 if len(self.table) else 0

    @cached_property
    def _by_rank(self) -> list[np.ndarray]:
        return [self.table[self.table[:, RANK] == rank] for rank in range(self.stages)]

    def actions(self, rank: int | None = None) -> Iterator[Action]:
        """The actions of a rank, or of all, in order."""
        table = self.table if rank is None else self._by_rank[rank]
        return (Action(*row) for row in table.tolist())

    def missed_updates(self, stage: int) -> np.ndarray:
        """(batches,) how many updates of earlier batches each batch's first forward pass on a stage misses:
        its staleness."""
        rows = self._by_rank[stage]
        updates = np.cumsum(rows[:, KIND] == UPDATE)
        first = (rows[:, KIND] == FORWARD) & (rows[:, MICRO] == 0)
        missed = np.empty(self.batches, np.int64)
        missed[rows[first, BATCH]] = rows[first, BATCH] - updates[first]
        return missed

    def live_passes(self, stage: int) -> int:
        """The most forward passes of a stage that are alive at once, each from its forward action to the end
        of its backward one."""
        kinds = self._by_rank[stage][:, KIND]
        alive = np.cumsum(np.where(kinds == FORWARD, 1, np.where(kinds == BACKWARD, -1, 0)))
        return int(alive.max(initial=0))

    def stashed_versions(self, stage: int) -> int:
        """The most copies of a stage's parameters, beside the present ones, that passes alive refer to."""
        if not self.kind.stashes:
            return 0
        most, updates = 0, 0
        alive: dict[int, int] = {}
        for row in self._by_rank[stage].tolist():
            if row[KIND] == FORWARD:
                alive[row[BATCH]] = updates
            elif row[KIND] == BACKWARD:
                del alive[row[BATCH]]
            else:
                updates += 1
                most = max(most, len(set(alive.values())))
        return most


def staleness(name: str, stages: int, stage: int) -> int:
    """The updates that a forward pass of a stage misses while the pipeline is full: the paper's degree of
    staleness, 2 (K − i + 1) of `stale`, half of it in the order of PipeDream, 0 of the others."""
    behind = stages - 1 - stage
    return {"stale": 2 * behind, "stale-1f1b": behind, "pipedream": behind}.get(name, 0)


def live_passes(name: str, stages: int, stage: int, micro: int = 1) -> int:
    """The passes of a stage that are alive at once while the pipeline is full: of micro-batches where the
    schedule has them."""
    behind = stages - 1 - stage
    if name == "gpipe":
        return micro
    if name == "1f1b":
        return min(behind + 1, micro)
    return staleness(name, stages, stage) + 1


def make_schedule(name: str, stages: int, batches: int, micro: int = 1) -> PipelineSchedule:
    """The schedule of that name. Raises BppsaError for an unknown one, and for numbers that do not fit."""
    check_schedule(name, micro)
    stages = as_integer("a pipeline", "stages", stages, 1, error=BppsaError)
    batches = as_integer("a pipeline", "batches", batches, 0, error=BppsaError)
    rows = _stale(stages, batches) if name == "stale" else _by_orders(name, stages, batches, micro)
    table = np.array(list(rows), np.int64).reshape(-1, 6)
    order = np.lexsort((table[:, STAGE], table[:, KIND], table[:, CYCLE]))
    return PipelineSchedule(name, stages, batches, micro, table[order])


def check_schedule(name: str, micro: int) -> None:
    """Raise BppsaError unless there is a schedule of this name that takes so many micro-batches."""
    if not isinstance(name, str) or name not in SCHEDULES:
        raise BppsaError(f"the pipeline schedule {name!r} was asked for: there are {', '.join(SCHEDULES)}")
    micro = as_integer("a pipeline", "micro_batches", micro, 1, error=BppsaError)
    if micro > 1 and not SCHEDULES[name].micro:
        takes = ", ".join(known for known, kind in SCHEDULES.items() if kind.micro)
        raise BppsaError(
            f"{micro} micro-batches were asked for and the schedule {name!r} has whole batches: take {takes}"
        )


def _stale(stages: int, batches: int) -> Iterator[Action]:
    """Section 3: in cycle t the paper's stage i goes forward on batch t − i + 1 and back on batch
    t − 2 K − 1 + i, all forward passes before the updates."""
    for stage in range(stages):
        for batch in range(batches):
            cycle = batch + 2 * (stages - 1) - stage
            yield Action(batch + stage, stage, FORWARD, stage, batch)
            yield Action(cycle, stage, BACKWARD, stage, batch)
            yield Action(cycle, stage, UPDATE, stage, batch)


def _by_orders(name: str, stages: int, batches: int, micro: int) -> Iterator[Action]:
    """Each rank's actions one after another, one a cycle, as soon as their input is there; an update is in
    the cycle of the backward pass before it."""
    orders = [_order(name, stages, batches, micro, stage) for stage in range(stages)]
    positions, cycles = [0] * stages, [0] * stages
    made: dict[tuple[int, int, int, int], int] = {}
    pending = True
    while pending:
        pending = False
        for stage, order in enumerate(orders):
            while positions[stage] < len(order):
                kind, batch, number = order[positions[stage]]
                if kind == UPDATE:
                    yield Action(cycles[stage] - 1, stage, kind, stage, batch)
                else:
                    needs = _needs(kind, stage, stages, batch, number)
                    if needs is not None and needs not in made:
                        break
                    cycle = max(cycles[stage], made[needs] + 1 if needs is not None else 0)
                    made[kind, stage, batch, number] = cycle
                    cycles[stage] = cycle + 1
                    yield Action(cycle, stage, kind, stage, batch, number)
                positions[stage] += 1
                pending = True


def _needs(kind: int, stage: int, stages: int, batch: int, micro: int) -> tuple[int, int, int, int] | None:
    """The action of another rank that this one waits for."""
    neighbour = stage - 1 if kind == FORWARD else stage + 1
    return (kind, neighbour, batch, micro) if 0 <= neighbour < stages else None


def _order(name: str, stages: int, batches: int, micro: int, stage: int) -> list[tuple[int, int, int]]:
    """The (kind, batch, micro) of a stage's actions, in order."""
    behind = stages - 1 - stage
    found = []
    if SCHEDULES[name].micro or name == "none":
        for batch in range(batches):
            parts = [(batch, number) for number in range(micro)]
            if name == "1f1b":
                found += _in_turn(parts, behind, each_updates=False)
            else:
                found += [(FORWARD, *part) for part in parts]
                found += [(BACKWARD, *part) for part in reversed(parts)]
            found.append((UPDATE, batch, 0))
        return found
    return _in_turn([(batch, 0) for batch in range(batches)], behind, each_updates=True)


def _in_turn(parts: list[tuple[int, int]], first: int, *, each_updates: bool) -> list[tuple[int, int, int]]:
    """`first` forward passes, then one back for one forward, until all parts are back."""
    found = [(FORWARD, *part) for part in parts[:first]]
    for number, part in enumerate(parts):
        found += [(FORWARD, *later) for later in parts[first + number : first + number + 1]]
        found.append((BACKWARD, *part))
        if each_updates:
            found.append((UPDATE, part[0], 0))
    return found
