"""Pipeline schedules: which rank goes forward or back through which stage on which batch, and when it updates
the stage's parameters. Plain integers, made without a device.

Stages are numbered from 0 here; the paper's stage i is stage i − 1. There are K + 1 of them with K cuts. Of p
ranks rank r has the stages r, r + p, r + 2 p, …
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.errors import BppsaError

#: What an action does.
FORWARD, BACKWARD, UPDATE, WEIGHTS = range(4)
KINDS = ("forward", "backward", "update", "weights")
#: Columns of a schedule's table.
CYCLE, RANK, KIND, STAGE, BATCH, MICRO = range(6)


@dataclass(frozen=True)
class ScheduleKind:
    """What schedules of one name have in common.

    summary   what it does, in a line
    micro     whether a batch is cut into micro-batches, whose gradients are one update
    stale     whether forward passes miss updates, and the backward pass takes the parameters of its own time
    stashes   whether the backward pass takes the parameters of its forward pass, of which copies are kept
    splits    whether a backward action is by the stage's input alone, and the gradients by its weights are an
              action of their own (WEIGHTS), which waits for a rank that would be idle
    interleaves  whether a rank has several stages
    """

    summary: str
    micro: bool = False
    stale: bool = False
    stashes: bool = False
    splits: bool = False
    interleaves: bool = False

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
    "gpipe": ScheduleKind(
        "micro-batches, all forward passes, then the backward ones, last first", micro=True
    ),
    "1f1b": ScheduleKind("micro-batches, forward and backward in turn", micro=True),
    "pipedream": ScheduleKind(
        "batches, forward and backward in turn, at the weights of the forward pass", stashes=True
    ),
    "stale-1f1b": ScheduleKind("batches, forward and backward in turn, with stale weights", stale=True),
    "interleaved-1f1b": ScheduleKind(
        "micro-batches, forward and backward in turn, on ranks of several stages (Narayanan et al. 2021)",
        micro=True,
        interleaves=True,
    ),
    "zb-h1": ScheduleKind(
        "1f1b with the gradients by weights put where ranks would be idle (ZB-H1, Qi et al. 2024)",
        micro=True,
        splits=True,
    ),
    "interleaved-zb": ScheduleKind(
        "interleaved-1f1b with the gradients by weights put where ranks would be idle",
        micro=True,
        splits=True,
        interleaves=True,
    ),
}


class Action(NamedTuple):
    """A row of a schedule's table.

    cycle  actions of one rank in one cycle follow each other; what a rank sends is there in a later cycle
    rank   which rank acts: the one of the stage
    kind   FORWARD, BACKWARD, UPDATE or WEIGHTS
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
    ranks    that share the stages
    batches  that go through
    micro    micro-batches of a batch
    table    (actions, 6) int64: cycle, rank, kind, stage, batch, micro; in an order in which one process can
             run them, and each rank its own

    Laws: every micro-batch goes once forward and once back through each stage, in two halves where the
    schedule splits, and after the last one of a batch the stage is updated, in the order of the batches. What
    an action takes from another stage was made in an earlier cycle.
    """

    name: str
    stages: int
    ranks: int
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
        return [self.table[self.table[:, RANK] == rank] for rank in range(self.ranks)]

    @cached_property
    def _by_stage(self) -> list[np.ndarray]:
        return [self.table[self.table[:, STAGE] == stage] for stage in range(self.stages)]

    def actions(self, rank: int | None = None) -> Iterator[Action]:
        """The actions of a rank, or of all, in order."""
        table = self.table if rank is None else self._by_rank[rank]
        return (Action(*row) for row in table.tolist())

    def missed_updates(self, stage: int) -> np.ndarray:
        """(batches,) how many updates of earlier batches each batch's first forward pass on a stage misses:
        its staleness."""
        rows = self._by_stage[stage]
        updates = np.cumsum(rows[:, KIND] == UPDATE)
        first = (rows[:, KIND] == FORWARD) & (rows[:, MICRO] == 0)
        missed = np.empty(self.batches, np.int64)
        missed[rows[first, BATCH]] = rows[first, BATCH] - updates[first]
        return missed

    def live_passes(self, stage: int) -> int:
        """The most forward passes of a stage that are alive at once, each from its forward action to the end
        of its backward one, or of that by weights."""
        return self._most(stage, FORWARD, WEIGHTS if self.kind.splits else BACKWARD)

    def pending_passes(self, stage: int) -> int:
        """The most backward passes of a stage that are under way at once: between their two halves, where
        the schedule splits them."""
        return self._most(stage, BACKWARD, WEIGHTS) if self.kind.splits else 1

    def _most(self, stage: int, begin: int, end: int) -> int:
        kinds = self._by_stage[stage][:, KIND]
        alive = np.cumsum((kinds == begin).astype(np.int64) - (kinds == end))
        return int(alive.max(initial=0))

    def stashed_versions(self, stage: int) -> int:
        """The most copies of a stage's parameters, beside the present ones, that passes alive refer to."""
        if not self.kind.stashes:
            return 0
        most, updates = 0, 0
        alive: dict[int, int] = {}
        for row in self._by_stage[stage].tolist():
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


def live_passes(name: str, stages: int, stage: int, micro: int = 1, ranks: int | None = None) -> int:
    """The passes of a stage that are alive at once while the pipeline is full: of micro-batches where the
    schedule has them."""
    if name == "gpipe":
        return micro
    if name == "1f1b":
        return min(stages - stage, micro)
    if SCHEDULES[name].micro:
        return make_schedule(name, stages, 1, micro, ranks).live_passes(stage)
    return staleness(name, stages, stage) + 1


def make_schedule(
    name: str, stages: int, batches: int, micro: int = 1, ranks: int | None = None
) -> PipelineSchedule:
    """The schedule of that name.

    ranks  by default one a stage; where the schedule interleaves, the most that have several stages each

    Raises BppsaError for an unknown one, and for numbers that do not fit.
    """
    check_schedule(name, micro)
    stages = as_integer("a pipeline", "stages", stages, 1, error=BppsaError)
    batches = as_integer("a pipeline", "batches", batches, 0, error=BppsaError)
    ranks = checked_ranks(name, stages, micro, ranks)
    if name == "stale":
        rows = list(_stale(stages, batches))
    elif SCHEDULES[name].overlaps:
        rows = list(
            _played([_in_turn_of_batches(stages - 1 - stage, batches, stage) for stage in range(stages)])
        )
    else:
        rows = _repeated(
            list(_played([_order(name, stages, ranks, micro, r) for r in range(ranks)])), batches
        )
    table = np.array(rows, np.int64).reshape(-1, 6)
    # Of a cycle updates come last.
    order = np.lexsort((table[:, STAGE], table[:, KIND], table[:, KIND] == UPDATE, table[:, CYCLE]))
    return PipelineSchedule(name, stages, ranks, batches, micro, table[order])


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


def checked_ranks(name: str, stages: int, micro: int, ranks: int | None) -> int:
    """The ranks of a schedule, as asked for or by default. Raises BppsaError where stages or micro-batches do
    not fit them."""
    kind = SCHEDULES[name]
    if ranks is None:
        several = (count for count in range(stages // 2, 1, -1) if stages % count == 0)
        ranks = next(several, 1) if kind.interleaves else stages
    ranks = as_integer("a pipeline", "ranks", ranks, 1, error=BppsaError)
    if stages != ranks and not kind.interleaves and name != "none":
        takes = ", ".join(known for known, other in SCHEDULES.items() if other.interleaves)
        raise BppsaError(
            f"{stages} stages were asked for on {ranks} ranks and the schedule {name!r} has a stage a rank: "
            f"take {takes} for several"
        )
    if stages % ranks:
        raise BppsaError(
            f"{stages} stages were asked for on {ranks} ranks by the schedule {name!r}: each has as many, so "
            f"cut the network into a multiple of {ranks}"
        )
    if kind.interleaves and micro % ranks:
        raise BppsaError(
            f"{micro} micro-batches were asked for and the schedule {name!r} takes them in groups of as many "
            f"as there are ranks: take a multiple of {ranks}"
        )
    return ranks


def _stale(stages: int, batches: int) -> Iterator[Action]:
    """Section 3: in cycle t the paper's stage i goes forward on batch t − i + 1 and back on batch
    t − 2 K − 1 + i, all forward passes before the updates."""
    for stage in range(stages):
        for batch in range(batches):
            cycle = batch + 2 * (stages - 1) - stage
            yield Action(batch + stage, stage, FORWARD, stage, batch)
            yield Action(cycle, stage, BACKWARD, stage, batch)
            yield Action(cycle, stage, UPDATE, stage, batch)


class _Turn(NamedTuple):
    """An action whose cycle is not known yet."""

    kind: int
    stage: int
    batch: int = 0
    micro: int = 0


def _played(orders: list[list[_Turn]]) -> Iterator[Action]:
    """Each rank's actions one after another, one a cycle, as soon as their input is there; an update is in
    the cycle of the action before it."""
    last = max((turn.stage for order in orders for turn in order), default=0)
    positions, cycles = [0] * len(orders), [0] * len(orders)
    made: dict[_Turn, int] = {}
    pending = True
    while pending:
        pending = False
        for rank, order in enumerate(orders):
            while positions[rank] < len(order):
                turn = order[positions[rank]]
                cycle = cycles[rank]
                if turn.kind == UPDATE:
                    cycle -= 1
                else:
                    needs = _needs(turn, last)
                    if needs is not None and needs not in made:
                        break
                    cycle = made[turn] = max(cycle, made[needs] + 1 if needs is not None else 0)
                    cycles[rank] = cycle + 1
                yield Action(cycle, rank, *turn)
                positions[rank] += 1
                pending = True


def _needs(turn: _Turn, last: int) -> _Turn | None:
    """The action of another stage that this one waits for."""
    if turn.kind == WEIGHTS:
        return None
    neighbour = turn.stage - 1 if turn.kind == FORWARD else turn.stage + 1
    return turn._replace(stage=neighbour) if 0 <= neighbour <= last else None


def _repeated(rows: list[Action], batches: int) -> list[Action]:
    """The actions of one batch for all batches, each from an empty pipeline to an empty one."""
    cycles = 1 + max(action.cycle for action in rows)
    return [
        action._replace(cycle=action.cycle + batch * cycles, batch=batch)
        for batch in range(batches)
        for action in rows
    ]


def _order(name: str, stages: int, ranks: int, micro: int, rank: int) -> list[_Turn]:
    """The actions of a rank on one batch, in order."""
    own, kind = range(rank, stages, ranks), SCHEDULES[name]
    if name in ("none", "gpipe"):
        forward = [_Turn(FORWARD, stage, 0, number) for stage in own for number in range(micro)]
        found = forward + [turn._replace(kind=BACKWARD) for turn in reversed(forward)]
    else:
        # Of several stages each takes as many micro-batches as there are ranks, then the next one does.
        size = ranks if len(own) > 1 else micro
        groups = [range(start, start + size) for start in range(0, micro, size)]
        forward = [_Turn(FORWARD, s, 0, number) for group in groups for s in own for number in group]
        back = [_Turn(BACKWARD, s, 0, number) for group in groups for s in reversed(own) for number in group]
        behind = ranks - 1 - rank
        first = behind if len(own) == 1 else 2 * behind + (len(own) - 1) * ranks
        found = _in_turn(forward, back, first)
        if kind.splits:
            found = _with_weights(found, rank)
    return found + [_Turn(UPDATE, stage) for stage in reversed(own)]


def _in_turn(forward: list[_Turn], back: list[_Turn], first: int) -> list[_Turn]:
    """`first` forward passes, then one back for one forward, until all are back."""
    found = forward[:first]
    for number, turn in enumerate(back):
        found += [*forward[first + number : first + number + 1], turn]
    return found


def _with_weights(turns: list[_Turn], waiting: int) -> list[_Turn]:
    """The turns with a WEIGHTS action for each backward pass, in the same order. While forward passes are to
    come, it is `waiting` backward passes later, so that no rank has more passes alive than the first; then
    one follows each backward pass, and the rest stand at the end."""
    found: list[_Turn] = []
    behind: deque[_Turn] = deque()
    last = max(position for position, turn in enumerate(turns) if turn.kind == FORWARD)
    for position, turn in enumerate(turns):
        found.append(turn)
        if turn.kind == BACKWARD:
            behind.append(turn._replace(kind=WEIGHTS))
            if len(behind) > waiting or position > last + 1:
                found.append(behind.popleft())
    return [*found, *behind]


def _in_turn_of_batches(first: int, batches: int, stage: int) -> list[_Turn]:
    """`first` batches forward, then one back for one forward, each followed by its update."""
    forward = [_Turn(FORWARD, stage, batch) for batch in range(batches)]
    found = _in_turn(forward, [turn._replace(kind=BACKWARD) for turn in forward], first)
    pairs = ((turn, turn._replace(kind=UPDATE)) for turn in found)
    return [each for back, update in pairs for each in ((back, update) if back.kind == BACKWARD else (back,))]
