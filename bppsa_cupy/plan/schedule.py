"""Schedules: in which order a scan computes which segments. Plain integers, made without a device.

The scan's input array is a_0, a_1, …, a_n (equation 5): a_0 is the gradient vector by the output,
a_k for k >= 1 is element k of the chain. A segment [begin, end) stands for a_begin ⋄ … ⋄ a_{end-1}
with A ⋄ B = B·A: the vector v(end) where begin is 0, the matrix M(begin, end) elsewhere. The results
of the exclusive scan are out[k] = v(k) for k = 1, …, n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

#: The schedules a plan may hold.
SCHEDULES = ("linear", "blelloch", "hybrid")

#: A segment of the scan's input array: (begin, end), half open.
Segment = tuple[int, int]


class Step(NamedTuple):
    """One product: segment [begin, end) from [begin, split) and [split, end).

    Attributes
    ----------
    level : int
        Steps of one level are independent. Levels run one after the other.
    kind : str
        "mm" computes M(begin, end) = M(split, end)·M(begin, split), with 1 <= begin. "mv" computes
        v(end) = M(split, end)·v(split), with begin = 0. "vjp" computes the same for one element,
        end = split + 1, by the VJP of its layer, without values of the element.
    worker : int
        The worker or rank that runs the step; 0 before a plan assigns workers.
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


#: The kinds of a step, by their number in a table.
KINDS = ("mv", "mm")

#: The columns of a table of steps.
LEVEL, BEGIN, SPLIT, END, KIND, WORKER = range(6)


@dataclass(frozen=True, eq=False)
class Schedule:
    """The steps of a scan over a_0, …, a_n, sorted by level and then by position.

    Attributes
    ----------
    name : str
        One of SCHEDULES.
    n : int
        The number of matrices.
    table : array of int64, (steps, 6)
        Level, begin, split, end, kind (its number in KINDS) and worker of each step. Read-only.
    levels : int or None
        The levels of the up-sweep of a "hybrid" with blocks of 2**levels elements, else None.
    vjps : tuple of int
        The elements that are crossed by the VJPs of their layers, ascending. One step multiplies each by a
        vector, and no other step reads it.

    Notes
    -----
    Laws: a segment is computed at most once, and read only at a later level than the one that
    computes it (a_k at any level); v(1), …, v(n) are all computed; no product is dead. The in-place
    moves of algorithm 1 are logical and leave no trace here.
    """

    name: str
    n: int
    table: np.ndarray
    levels: int | None = None
    vjps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        table = np.ascontiguousarray(self.table, np.int64).reshape(-1, 6).view()
        table.flags.writeable = False
        object.__setattr__(self, "table", table)

    @cached_property
    def crossed(self) -> np.ndarray:
        """(steps,) which steps are VJPs."""
        by_vjp = np.isin(self.table[:, SPLIT], self.vjps) & (self.table[:, KIND] == 0)
        return np.asarray(by_vjp & (self.table[:, END] == self.table[:, SPLIT] + 1))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Schedule)
            and (self.name, self.n, self.levels, self.vjps) == (other.name, other.n, other.levels, other.vjps)
            and np.array_equal(self.table, other.table)
        )

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The rows of the table, one by one: of a long schedule they take longer to make than it did."""
        columns = self.table.T.tolist()
        columns[KIND] = [
            "vjp" if crossed else KINDS[kind]
            for kind, crossed in zip(columns[KIND], self.crossed.tolist(), strict=True)
        ]
        return tuple(map(Step, *columns))

    @property
    def out(self) -> np.ndarray:
        """(steps, 2) the segments that are computed."""
        return self.table[:, [BEGIN, END]]

    @cached_property
    def makers(self) -> np.ndarray:
        """(steps, 2) the positions of the steps that compute the left and the right operand; -1: an input."""
        names = np.array([self.n + 2, 1])
        operands = self.table[:, [[BEGIN, SPLIT], [SPLIT, END]]]
        made, wanted = self.out @ names, operands @ names
        if not made.size:
            return wanted
        order = np.argsort(made, kind="stable")
        nearest = order[np.minimum(np.searchsorted(made, wanted, sorter=order), made.size - 1)]
        return np.where(made[nearest] == wanted, nearest, -1)

    def with_workers(self, workers: np.ndarray | Sequence[int]) -> Schedule:
        """This schedule with these workers, (steps,)."""
        table = self.table.copy()
        table[:, WORKER] = workers
        return replace(self, table=table)

    @property
    def depth(self) -> int:
        """Number of levels, those without a product included (algorithm 1 has one of moves alone)."""
        return int(self.table[-1, LEVEL]) + 1 if len(self.table) else 0

    @property
    def label(self) -> str:
        """The name, with its levels: "hybrid of 3 levels"."""
        return self.name if self.levels is None else f"{self.name} of {self.levels} levels"

    @property
    def computes_input_gradient(self) -> bool:
        """Whether v(n + 1), the gradient with respect to the input of the run, is computed."""
        return bool((self.out == (0, self.n + 1)).all(1).any())


def up_sweep_levels(n: int) -> int:
    """Levels of the up-sweep of algorithm 1: ⌈log2(n + 1)⌉ - 1, and 0 for n = 0."""
    return max(n.bit_length() - 1, 0)


# ---- the serial scan, algorithm 1 of the paper, and hybrids of both ----


def linear(n: int) -> Schedule:
    """The serial scan: v(k + 1) = M(k, k + 1)·v(k) for k = 1, …, n - 1 (equation 3)."""
    return _without_dead("linear", n, 0)


def blelloch(n: int) -> Schedule:
    """Algorithm 1 of the paper, the modified Blelloch scan, for any n >= 0."""
    return _without_dead("blelloch", n, up_sweep_levels(n))


def hybrid(n: int, levels: int) -> Schedule:
    """`levels` levels of up-sweep, the serial scan over the blocks that are left, the matching down-sweep.

    The blocks hold 2**levels elements (paper, section 5.3). hybrid(n, 0) has the steps of linear(n) and
    hybrid(n, up_sweep_levels(n)) those of blelloch(n).
    """
    assert 0 <= levels <= up_sweep_levels(n), (n, levels)
    return replace(_without_dead("hybrid", n, levels), levels=levels)


def every_hybrid(n: int) -> list[Schedule]:
    """hybrid(n, levels) for every number of levels, from 0 on."""
    return [hybrid(n, levels) for levels in range(up_sweep_levels(n) + 1)]


def with_input_gradient(schedule: Schedule) -> Schedule:
    """`schedule` and one more step at the end, v(n + 1) = M(n, n + 1)·v(n).

    The schedule itself where it has that step, or where n is 0 (v(1) is the input gradient then).
    """
    n = schedule.n
    if n == 0 or schedule.computes_input_gradient:
        return schedule
    return replace(schedule, table=np.vstack([schedule.table, [schedule.depth, 0, n, n + 1, 0, 0]]))


def _without_dead(name: str, n: int, levels: int) -> Schedule:
    """Algorithm 1 with `levels` up-sweep levels, without its dead products."""
    columns = [np.zeros((6, 0), np.int64)]

    def add(level: int | np.ndarray, begin: int | np.ndarray, split: np.ndarray, length: int) -> None:
        end = np.minimum(split + length, n + 1)
        steps = np.broadcast_arrays(level, begin, split, end, np.not_equal(begin, 0), 0)
        columns.append(np.array(steps, np.int64))

    for d in range(levels):
        begin = np.arange(0, n - 2**d + 1, 2 ** (d + 1))
        add(d, begin, begin + 2**d, 2**d)
    block = 2**levels
    # v(block) is a_0, or a result of the up-sweep.
    middle = np.arange(block, n - block + 1, block)
    add(levels + np.arange(middle.size), 0, middle, block)
    # The level of moves alone with which the down-sweep of algorithm 1 starts is kept as a number.
    start = levels + max(middle.size, 1)
    for d in reversed(range(levels)):
        add(start + levels - 1 - d, 0, np.arange(2 ** (d + 1), n - 2**d + 1, 2 ** (d + 1)), 2**d)
    every = np.hstack(columns).T
    return Schedule(name, n, every[every[:, END] <= n])
