"""Which rank owns which layers. Integers, made without a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_integer, as_integers
from bppsa_cupy.errors import PlanError

#: The largest number of parts; each takes memory, whether it holds an item or not.
MOST_RANKS = 1 << 20


@dataclass(frozen=True)
class Partition:
    """A split of a sequence of items into contiguous parts, one part per rank.

    Items are the layers of a network. Rank r owns the items i with
    bounds[r] <= i < bounds[r + 1]. Two equal bounds give a rank no items.

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
