"""Pipeline schedules: which stage runs forward or backward on which batch, and when it updates its weights.
Plain integers, made without a device.

Stages are numbered from 0 here; the paper's stage i is stage i − 1. There are K + 1 of them with K cuts. Over
ranks, rank r runs stage r.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.errors import BppsaError

#: What an action does.
FORWARD, BACKWARD, UPDATE = range(3)


@dataclass(frozen=True)
class ScheduleKind:
    """The properties that schedules of one name share.

    Attributes
    ----------
    summary : str
        A description in one line.
    micro : bool
        Whether a batch is cut into micro-batches, whose gradients make one update.
    stale : bool
        Whether forward passes miss updates, and the backward pass uses the present parameters.
    stashes : bool
        Whether the backward pass uses copies of the parameters of its forward pass.
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
    "none": ScheduleKind("one batch at a time, each stage waiting for the others"),
    "stale": ScheduleKind(
        "a forward and a backward pass a cycle on every stage, with stale weights (the paper's section 3)",
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
}


class Action(NamedTuple):
    """What a stage does to a batch in a cycle.

    Attributes
    ----------
    cycle : int
        Actions of a stage in the same cycle follow each other; what a stage sends arrives in a later
        cycle.
    kind : int
        FORWARD, BACKWARD or UPDATE.
    stage : int
        The stage.
    batch : int
        The number of the batch, from 0.
    micro : int
        The number of the micro-batch; 0 for an update.
    """

    cycle: int
    kind: int
    stage: int
    batch: int
    micro: int = 0


@dataclass(frozen=True, eq=False)
class PipelineSchedule:
    """A number of batches through a number of stages, from an empty pipeline to an empty one.

    Laws: every micro-batch goes once forward and once back through each stage, and after the last one of a
    batch the stage is updated, in the order of the batches. What an action takes from another stage was made
    in an earlier cycle.

    Attributes
    ----------
    name : str
        One of SCHEDULES.
    stages : int
        K + 1.
    batches : int
        The number of batches.
    micro : int
        Micro-batches of a batch.
    every : tuple of Action
        All actions, in an order in which one process can run them, and each rank its stage.
    """

    name: str
    stages: int
    batches: int
    micro: int
    every: tuple[Action, ...]

    @property
    def kind(self) -> ScheduleKind:
        return SCHEDULES[self.name]

    @property
    def cycles(self) -> int:
        """The number of cycles from the first action to the last."""
        return self.every[-1].cycle + 1 if self.every else 0

    def actions(self, stage: int | None = None) -> Iterator[Action]:
        """The actions of a stage, or of all, in order."""
        return (action for action in self.every if stage is None or action.stage == stage)


def staleness(name: str, stages: int, stage: int) -> int:
    """The updates that a forward pass of a stage misses while the pipeline is full: the paper's degree of
    staleness, 2 (K − i + 1) of `stale`, half of it in the order of PipeDream, 0 of the others."""
    behind = stages - 1 - stage
    return {"stale": 2 * behind, "stale-1f1b": behind, "pipedream": behind}.get(name, 0)


def live_passes(name: str, stages: int, stage: int, micro: int = 1) -> int:
    """The passes of a stage that are alive at once while the pipeline is full: of micro-batches where the
    schedule has them."""
    if name == "gpipe":
        return micro
    if name == "1f1b":
        return min(stages - stage, micro)
    return staleness(name, stages, stage) + 1


def make_schedule(name: str, stages: int, batches: int, micro: int = 1) -> PipelineSchedule:
    """The schedule of that name. Raises BppsaError for an unknown one, and for numbers that do not fit."""
    check_schedule(name, micro)
    stages = as_integer("a pipeline", "stages", stages, 1, error=BppsaError)
    batches = as_integer("a pipeline", "batches", batches, 0, error=BppsaError)
    actions: list[Action] = []
    if name == "stale":
        # Section 3: in cycle t the paper's stage i goes forward on batch t − i + 1 and back on batch
        # t − 2 K − 1 + i, all forward passes before the updates.
        for stage in range(stages):
            for batch in range(batches):
                cycle = batch + 2 * (stages - 1) - stage
                actions.append(Action(batch + stage, FORWARD, stage, batch))
                actions += (Action(cycle, kind, stage, batch) for kind in (BACKWARD, UPDATE))
    else:
        actions = list(_played([_order(name, stages, stage, batches, micro) for stage in range(stages)]))
        if not SCHEDULES[name].overlaps:
            # The actions of one batch serve all batches, each from an empty pipeline to an empty one.
            cycles = 1 + max(action.cycle for action in actions)
            actions = [
                action._replace(cycle=action.cycle + batch * cycles, batch=batch)
                for batch in range(batches)
                for action in actions
            ]
    # Within a cycle updates come last.
    actions.sort(key=lambda action: (action.cycle, action.kind, action.stage))
    return PipelineSchedule(name, stages, batches, micro, tuple(actions))


def check_schedule(name: str, micro: int) -> None:
    """Raise BppsaError unless there is a schedule of this name that takes so many micro-batches."""
    if not isinstance(name, str) or name not in SCHEDULES:
        raise BppsaError(f"the pipeline schedule {name!r} is unknown: use one of {', '.join(SCHEDULES)}")
    micro = as_integer("a pipeline", "micro_batches", micro, 1, error=BppsaError)
    if micro > 1 and not SCHEDULES[name].micro:
        takes = ", ".join(known for known, kind in SCHEDULES.items() if kind.micro)
        raise BppsaError(
            f"schedule {name!r} has no micro-batches: pass micro_batches=1, or one of the schedules {takes}"
        )


def _played(orders: list[list[Action]]) -> Iterator[Action]:
    """Each stage's actions in order, at most one per cycle, as soon as their input is there; an update is in
    the cycle of the action before it."""
    positions, cycles = [0] * len(orders), [0] * len(orders)
    made: dict[Action, int] = {}
    pending = True
    while pending:
        pending = False
        for stage, order in enumerate(orders):
            while positions[stage] < len(order):
                turn = order[positions[stage]]
                cycle = cycles[stage]
                if turn.kind == UPDATE:
                    cycle -= 1
                else:
                    neighbour = stage - 1 if turn.kind == FORWARD else stage + 1
                    if 0 <= neighbour < len(orders):
                        needs = turn._replace(stage=neighbour)
                        if needs not in made:
                            break
                        cycle = max(cycle, made[needs] + 1)
                    made[turn] = cycle
                    cycles[stage] = cycle + 1
                yield turn._replace(cycle=cycle)
                positions[stage] += 1
                pending = True


def _order(name: str, stages: int, stage: int, batches: int, micro: int) -> list[Action]:
    """The actions of a stage in order: on all batches if they overlap, else on one batch."""
    overlaps = SCHEDULES[name].overlaps
    keys = [(batch, 0) for batch in range(batches)] if overlaps else [(0, part) for part in range(micro)]
    forward = [Action(0, FORWARD, stage, *key) for key in keys]
    update = Action(0, UPDATE, stage, 0)
    if not overlaps and name != "1f1b":
        return [*forward, *(turn._replace(kind=BACKWARD) for turn in forward[::-1]), update]
    # As many forward passes as stages follow, then one backward pass for one forward pass.
    first = stages - 1 - stage
    turns = forward[:first]
    for number, turn in enumerate(forward):
        turns += [*forward[first + number : first + number + 1], turn._replace(kind=BACKWARD)]
        if overlaps:
            turns.append(turn._replace(kind=UPDATE))
    return turns if overlaps else [*turns, update]
