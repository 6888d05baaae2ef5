"""Which rank owns which part of a chain, and what ranks send. Integers, made without a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.arguments import as_integer, as_integers
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.schedule import BEGIN, END, LEVEL, SPLIT, WORKER, Schedule, Segment

#: The largest number of parts; each takes memory, whether it holds an item or not.
MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class Partition:
    """A split of a sequence of items into contiguous parts, one part per rank.

    Items are layers of a network or matrices of a scan. Rank r owns the items i with bounds[r] <= i <
    bounds[r + 1]. Two equal bounds give a rank no items.

    Parameters
    ----------
    bounds : tuple of int, (ranks + 1,)
        The first item of each part, then the number of items. Starts with 0 and does not decrease.

    Raises
    ------
    PlanError
        If the bounds are not valid.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.Partition.balanced([5, 1, 1, 5], ranks=2)
    Partition(bounds=(0, 2, 4))
    """

    bounds: tuple[int, ...]

    def __post_init__(self) -> None:
        value: Any = self.bounds
        bounds = as_integers("a partition", "bounds", value, error=PlanError)
        if bounds.ndim != 1 or bounds.size < 2 or bounds[0] != 0 or (np.diff(bounds) < 0).any():
            raise PlanError(
                f"a partition got the bounds {value!r}: pass integers that begin with 0 and do not decrease, "
                "for example (0, 3, 8) for 2 ranks"
            )
        object.__setattr__(self, "bounds", tuple(bounds.tolist()))

    @classmethod
    def balanced(cls, weights: Sequence[float] | np.ndarray, ranks: int) -> Partition:
        """Split items into parts of about equal weight, so that the heaviest part is as light as possible.

        Parameters
        ----------
        weights : array, (items,)
            Cost of each item, for example its multiply-adds, seconds or bytes. Not negative.
        ranks : int
            The number of parts.

        Returns
        -------
        Partition
            If several partitions minimise the weight of the heaviest part, the result is the one whose part
            weights have the smallest sum of squares. No part is empty if there are enough items.

        Raises
        ------
        PlanError
            If `ranks` is below 1, or a weight is negative or not finite.
        """
        ranks = as_integer("a partition", "ranks", ranks, 1, MOST_RANKS, error=PlanError)
        array = np.asarray(weights, np.float64)
        fits = np.isfinite(array) & (array >= 0)
        if not fits.all():
            raise PlanError(
                f"a partition got the weight {array[~fits][0]}: pass weights that are finite and at least 0"
            )
        items, parts = array.size, min(ranks, array.size)
        if not items:
            return cls((0,) * (ranks + 1))
        ends = np.concatenate([[0.0], np.cumsum(array)])
        weight = ends - ends[:, None]  # of the part from each item to each later one
        weight[np.tril_indices(items + 1)] = np.inf
        limit = _best_bounds(parts, weight, np.maximum)[0]
        squares = np.where(weight <= limit, weight / (limit or 1.0), np.inf) ** 2
        bounds = _best_bounds(parts, squares, np.add)[1]
        return cls((*bounds, *([items] * (ranks - parts))))

    @property
    def ranks(self) -> int:
        return len(self.bounds) - 1

    @property
    def items(self) -> int:
        return self.bounds[-1]

    @cached_property
    def owners(self) -> np.ndarray:
        """The rank that owns each item, (items,) int."""
        return np.repeat(np.arange(self.ranks), np.diff(self.bounds))

    def part(self, rank: int) -> range:
        """Return the range of the items that `rank` owns."""
        return range(self.bounds[rank], self.bounds[rank + 1])

    def check(self, items: int, ranks: int, unit: str) -> None:
        """Raise PlanError if the partition is not for `items` items and `ranks` ranks.

        `unit` names the items in the message.
        """
        if (self.items, self.ranks) != (items, ranks):
            raise PlanError(
                f"the partition {self.bounds} splits {self.items} {unit} over {self.ranks} ranks: pass a "
                f"partition that splits {items} over {ranks}"
            )


def _best_bounds(parts: int, cost: np.ndarray, join: np.ufunc) -> tuple[float, list[int]]:
    """The least cost of so many parts joined, and their bounds; cost[begin, end] is of one part."""
    least, cuts = cost[0], []
    for _ in range(1, parts):
        joined = join(least[:, None], cost)
        cuts.append(joined.argmin(0))
        least = joined.min(0)
    bounds = [least.size - 1]
    for cut in reversed(cuts):
        bounds.append(int(cut[bounds[-1]]))
    return float(least[-1]), [0, *reversed(bounds)]


class Message(NamedTuple):
    """A segment that one rank sends to another.

    It is sent before the steps of `level`: the level after the one that computes it, 0 for an input.
    """

    level: int
    segment: Segment
    source: int
    target: int


@dataclass(frozen=True, eq=False)
class RankSchedule:
    """A schedule over ranks. The rank that owns the last element of a step runs the step.

    Attributes
    ----------
    schedule : Schedule
        The schedule. The worker of each step is its rank.
    owners : array of int, (n + 1,)
        The ranks of a_0, …, a_n, in ascending or in descending order.
    ranks : int
        The number of ranks, including ranks that own nothing.
    sent : array of int, (messages, 5)
        Level, begin, end, source and target of each message, sorted.

    Notes
    -----
    Laws: before the level of a step, both operands are on its rank, computed or received there; the nearer
    operand is sent. v(k) reaches the owner of a_k, which needs it for the gradients of its parameters. A
    segment is sent to a rank once. Blocking sends and receives in this order never deadlock.
    """

    schedule: Schedule
    owners: np.ndarray
    ranks: int
    sent: np.ndarray

    def messages(self) -> list[Message]:
        """Every message, in the order of `sent`."""
        return [Message(level, (begin, end), *ranks) for level, begin, end, *ranks in self.sent.tolist()]

    def steps_of(self, rank: int) -> np.ndarray:
        """(k,) the positions of a rank's steps."""
        return np.flatnonzero(self.schedule.table[:, WORKER] == rank)


def place(schedule: Schedule, owners: Sequence[int] | np.ndarray, ranks: int) -> RankSchedule:
    """Put every step on the owner of its last element, and list the messages.

    `owners` (n,) are the ranks of a_1, …, a_n, in ascending or in descending order. a_0 is with a_1.
    """
    array = np.asarray(owners, np.int64)
    owner = np.concatenate([array[:1] if array.size else [0], array])
    table = schedule.table
    workers = owner[table[:, END] - 1]
    made = np.where(schedule.makers[:, 0] < 0, 0, table[schedule.makers[:, 0], LEVEL] + 1)
    operands = np.stack([made, table[:, BEGIN], table[:, SPLIT], owner[table[:, SPLIT] - 1], workers], axis=1)
    vectors = np.arange(1, schedule.n + 1)
    ready = np.zeros(schedule.n + 2, np.int64)
    of_vectors = table[table[:, BEGIN] == 0]
    ready[of_vectors[:, END]] = of_vectors[:, LEVEL] + 1
    wanted = np.stack(
        [ready[vectors], np.zeros_like(vectors), vectors, owner[vectors - 1], owner[vectors]], axis=1
    )
    sent = np.vstack([operands, wanted])
    sent = np.unique(sent[sent[:, 3] != sent[:, 4]], axis=0)
    return RankSchedule(schedule.with_workers(workers), owner, ranks, sent)
