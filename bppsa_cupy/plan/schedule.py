"""Schedules: in which order a scan computes which segments. Plain integers, made without a device.

The scan's input array is a_0, a_1, …, a_n (equation 5): a_0 is the gradient vector by the output,
a_k for k >= 1 is element k of the chain. A segment [begin, end) stands for a_begin ⋄ … ⋄ a_{end-1}
with A ⋄ B = B·A: the vector v(end) where begin is 0, the matrix M(begin, end) elsewhere. The results
of the exclusive scan are out[k] = v(k) for k = 1, …, n.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from bppsa_cupy.errors import PlanError

#: A segment of the scan's input array: (begin, end), half open.
Segment = tuple[int, int]


class Step(NamedTuple):
    """One product: segment [begin, end) from [begin, split) and [split, end).

    level   steps of one level are independent; levels run one after the other
    kind    "mm": M(begin, end) = M(split, end)·M(begin, split), 1 <= begin
            "mv": v(end) = M(split, end)·v(split), begin = 0
    worker  which worker runs it; as made, the step's position in its level
    """

    level: int
    begin: int
    split: int
    end: int
    kind: str
    worker: int = 0

    @property
    def left(self) -> Segment:
        """The nearer operand, the right factor of the matrix product."""
        return self.begin, self.split

    @property
    def right(self) -> Segment:
        """The farther operand, the left factor of the matrix product; always a matrix."""
        return self.split, self.end

    @property
    def out(self) -> Segment:
        """The segment this step computes."""
        return self.begin, self.end


@dataclass(frozen=True)
class Schedule:
    """The steps of a scan over a_0, …, a_n, sorted by level and then by position.

    name    "linear", "blelloch" or "hybrid"
    n       number of matrices
    levels  of the up-sweep, for a "hybrid" of blocks of 2**levels elements; None for the others, and for
            a computed one

    Laws: a segment is computed at most once, and read only at a later level than the one that
    computes it (a_k at any level); v(1), …, v(n) are all computed; no product is dead. The in-place
    moves of algorithm 1 are logical and leave no trace here.
    """

    name: str
    n: int
    steps: tuple[Step, ...]
    levels: int | None = None

    @property
    def depth(self) -> int:
        """Number of levels, those without a product included (algorithm 1 has one of moves alone)."""
        return self.steps[-1].level + 1 if self.steps else 0

    @property
    def label(self) -> str:
        """Its name and how it was made: "hybrid of 3 levels", "hybrid, computed"."""
        if self.name != "hybrid":
            return self.name
        return "hybrid, computed" if self.levels is None else f"hybrid of {self.levels} levels"

    @property
    def computes_input_gradient(self) -> bool:
        """Whether v(n + 1), the gradient by the input of the run, is computed."""
        return any(step.out == (0, self.n + 1) for step in self.steps)

    def by_level(self) -> list[list[Step]]:
        """The steps of each level, 0 to `depth` - 1."""
        grouped: list[list[Step]] = [[] for _ in range(self.depth)]
        for step in self.steps:
            grouped[step.level].append(step)
        return grouped


def up_sweep_levels(n: int) -> int:
    """Levels of the up-sweep of algorithm 1: ⌈log2(n + 1)⌉ - 1, and 0 for n = 0."""
    return max(n.bit_length() - 1, 0)


def linear(n: int) -> Schedule:
    """The serial scan: v(k + 1) = M(k, k + 1)·v(k) for k = 1, …, n - 1 (equation 3)."""
    return Schedule("linear", n, _live(_all_steps(n, 0), n))


def blelloch(n: int) -> Schedule:
    """Algorithm 1 of the paper, the modified Blelloch scan, for any n >= 0."""
    return Schedule("blelloch", n, _live(_all_steps(n, up_sweep_levels(n)), n))


def hybrid(n: int, levels: int) -> Schedule:
    """`levels` levels of up-sweep, the serial scan over the blocks that are left, the matching down-sweep.

    The blocks hold 2**levels elements (paper, section 5.3). hybrid(n, 0) has the steps of linear(n) and
    hybrid(n, up_sweep_levels(n)) those of blelloch(n). Raises PlanError for any other number of levels.
    """
    most = up_sweep_levels(n)
    if not 0 <= levels <= most:
        raise PlanError(f"{levels} up-sweep levels were asked for: a chain of {n} matrices takes 0 to {most}")
    return Schedule("hybrid", n, _live(_all_steps(n, levels), n), levels)


#: Up-sweep levels of the paper's hand-picked schedule for pruned VGG-11.
PAPER_LEVELS = 3


def paper_hybrid(n: int) -> Schedule:
    """The hand-picked schedule of section 5.3 and figure 10: up-sweep L0 to L2, serial scan, down-sweep.

    The paper's down-sweep begins with level L7, the first one whose results are not all there after the
    serial scan over blocks of 8; as products these are the steps of hybrid(n, 3). A chain that is too
    short for three levels takes what it has.
    """
    return hybrid(n, min(PAPER_LEVELS, up_sweep_levels(n)))


def from_splits(name: str, n: int, splits: Mapping[Segment, int]) -> Schedule:
    """The schedule that computes segments by given splits: (begin, end) -> split.

    splits  of v(2), …, v(n) and of every segment these need; what they do not need is left out

    Vectors are computed at the first level that has their operands, matrices at the last one that serves
    their readers, where they are live for the shortest time.
    """
    depth: dict[Segment, int] = {}
    stack = [(0, k) for k in range(2, n + 1)]
    while stack:
        begin, end = stack[-1]
        split = splits[begin, end]
        operands = [s for s in ((begin, split), (split, end)) if s[1] - s[0] > 1]
        waiting = [s for s in operands if s not in depth]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        depth[begin, end] = 1 + max((depth[s] for s in operands), default=-1)
    level: dict[Segment, int] = {}
    for segment in sorted(depth, key=lambda s: -depth[s]):
        begin, end = segment
        own = level[segment] if begin else level.setdefault(segment, depth[segment])
        for operand in ((begin, splits[segment]), (splits[segment], end)):
            if operand[0] and operand in depth:
                level[operand] = min(level.get(operand, own), own - 1)
    steps = sorted(Step(level[s], s[0], splits[s], s[1], "mm" if s[0] else "mv") for s in depth)
    return Schedule(name, n, _live(steps, n))


def with_input_gradient(schedule: Schedule) -> Schedule:
    """`schedule` and one more step at the end, v(n + 1) = M(n, n + 1)·v(n).

    The schedule itself where it has that step, or where n is 0 (v(1) is the input gradient then).
    """
    n = schedule.n
    if n == 0 or schedule.computes_input_gradient:
        return schedule
    return replace(schedule, steps=(*schedule.steps, Step(schedule.depth, 0, n, n + 1, "mv")))


def dead_products(n: int, levels: int) -> tuple[Step, ...]:
    """The products of the printed algorithm that no v(1), …, v(n) needs: `hybrid` leaves them out.

    They are the products of the up-sweep whose right end is a_n (the exclusive scan never reads the
    total), in a convolutional network the largest ones.
    """
    every = _all_steps(n, levels)
    alive = {step.out for step in _live(every, n)}
    return tuple(step for step in every if step.out not in alive)


def _all_steps(n: int, levels: int) -> tuple[Step, ...]:
    """Every product of algorithm 1 with `levels` up-sweep levels, in order, dead ones included."""
    steps: list[Step] = []

    def add(level: int, begin: int, split: int, end: int) -> None:
        steps.append(Step(level, begin, split, end, "mv" if begin == 0 else "mm"))

    for d in range(levels):
        for i in range(0, n - 2**d + 1, 2 ** (d + 1)):
            add(d, i, i + 2**d, min(i + 2 ** (d + 1), n + 1))
    block = 2**levels
    # v(block) is a_0, or a result of the up-sweep.
    middle = range(block, n - block + 1, block)
    for level, split in enumerate(middle, levels):
        add(level, 0, split, split + block)
    # The level of moves alone with which the down-sweep of algorithm 1 starts is kept as a number.
    start = levels + max(len(middle), 1)
    for d in reversed(range(levels)):
        level = start + levels - 1 - d
        for i in range(2 ** (d + 1), n - 2**d + 1, 2 ** (d + 1)):
            add(level, 0, i, i + 2**d)
    return tuple(steps)


def _live(steps: Iterable[Step], n: int) -> tuple[Step, ...]:
    """The steps that v(1), …, v(n) need, found from the last to the first; a worker a step of a level."""
    wanted: set[Segment] = {(0, k) for k in range(1, n + 1)}
    kept = []
    for step in reversed(tuple(steps)):
        if step.out in wanted:
            wanted.update((step.left, step.right))
            kept.append(step)
    width: Counter[int] = Counter()
    numbered = []
    for step in reversed(kept):
        numbered.append(step._replace(worker=width[step.level]))
        width[step.level] += 1
    return tuple(numbered)


def check_schedule(schedule: Schedule) -> None:
    """Raise PlanError, naming the step, where a law of `Schedule` is broken (dead products are allowed)."""
    n = schedule.n
    made: dict[Segment, int] = {(k, k + 1): -1 for k in range(n + 1)}
    last = 0
    for step in schedule.steps:
        fault = ""
        if not 0 <= step.begin < step.split < step.end <= n + 1:
            fault = f"its segment is none of a scan over a_0, …, a_{n}"
        elif step.kind != ("mv" if step.begin == 0 else "mm"):
            fault = "its kind does not fit its segment"
        elif step.level < last or step.worker < 0:
            fault = "levels must not decrease, nor workers be negative"
        elif step.out in made:
            fault = "its segment is there already"
        elif any(made.get(operand, step.level) >= step.level for operand in (step.left, step.right)):
            fault = "an operand is not there before its level"
        if fault:
            raise PlanError(f"schedule {schedule.name}: {step} is not legal: {fault}")
        made[step.out] = last = step.level
    missing = [k for k in range(1, n + 1) if (0, k) not in made]
    if missing:
        raise PlanError(f"schedule {schedule.name} does not compute v({missing[0]})")
