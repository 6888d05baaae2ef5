"""What every product over every segment of a chain costs: the table the schedule search works on."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from bppsa_cupy.plan.algorithms import blelloch
from bppsa_cupy.plan.budget import Budget
from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.cost import step_cost
from bppsa_cupy.plan.schedule import KIND, Step
from bppsa_cupy.plan.search import loops
from bppsa_cupy.plan.sizes import ChainSizes

#: Chains of at most so many elements, or of so many different ones, are searched over every segment.
FEW_ELEMENTS = 64
FEW_PATTERNS = 8
#: Chains of more elements are not searched: a table of all segments would be too large.
MOST_ELEMENTS = 1024


@dataclass(frozen=True, eq=False)
class SegmentCosts:
    """Seconds of every product of a chain of n matrices, by classes of equal segments.

    classes  (n + 1, n + 1) int32: the class of M(i, j) at [i, j], 1 <= i < j <= n; -1 where the segment
             is not to be computed
    mm       (classes, classes): of M(k, j)·M(i, k), by the classes of M(i, k) and M(k, j)
    mv       (classes,): of a matrix times a vector
    """

    classes: np.ndarray
    mm: np.ndarray
    mv: np.ndarray

    @property
    def n(self) -> int:
        """The number of matrices."""
        return self.classes.shape[0] - 1

    @classmethod
    def of(cls, sizes: ChainSizes, budget: Budget) -> SegmentCosts:
        """The costs of a chain, by `step_cost`, over the segments that have been counted."""
        classes, members = _classes(sizes)
        mv = np.zeros(len(members))
        for number, (k, j) in enumerate(members.tolist()):
            mv[number] = step_cost(sizes, Step(0, 0, k, j, "mv"), budget).seconds
        pairs = np.zeros((len(members), len(members), 3), np.int16)
        loops.find_pairs(classes, pairs)
        mm = np.full((len(members), len(members)), np.inf)
        for left, right in np.argwhere(pairs[..., 0]):
            begin, split, end = pairs[left, right].tolist()
            mm[left, right] = step_cost(sizes, Step(0, begin, split, end, "mm"), budget).seconds
        return cls(classes, mm, mv)

    def seconds(self, splits: np.ndarray, segments: np.ndarray) -> np.ndarray:
        """(steps,) seconds of the products that make `segments` (steps, 2) by `splits` (n + 1, n + 1)."""
        begin, end = segments.T
        split = splits[begin, end]
        right = self.classes[split, end]
        result = self.mv[right]
        inner = begin > 0
        result[inner] = self.mm[self.classes[begin[inner], split[inner]], right[inner]]
        return result


def is_searched(chain: Chain) -> bool:
    """Whether a chain is short enough for a search."""
    return len(chain) <= MOST_ELEMENTS


def searched_segments(chain: Chain) -> np.ndarray:
    """(k, 2) the matrix segments that a computed schedule of `chain` may make, elements included.

    All that are not dead, [i, j) with 1 <= i < j <= n; of long chains of many different elements, whose
    counting would take too long, and of those that are not searched, the segments of algorithm 1, which
    begin at a multiple of their power of two, and are those of every hybrid.
    """
    n = len(chain)
    different = {(element.pattern.digest, element.shared) for element in chain.elements}
    if n <= FEW_ELEMENTS or (is_searched(chain) and len(different) <= FEW_PATTERNS):
        products = np.stack(np.triu_indices(n, 2), 1) + 1
    else:
        made = blelloch(n)
        products = made.out[made.table[:, KIND] > 0]
    return np.vstack([np.arange(1, n + 1)[:, None] + [0, 1], products])


def _classes(sizes: ChainSizes) -> tuple[np.ndarray, np.ndarray]:
    """`SegmentCosts.classes`, and (classes, 2) a segment of each.

    Segments of one class have one pattern, known by its sizes or by its structure.
    """
    n = len(sizes.chain)
    numbers, distinct = sizes.counting.everything()
    first: dict[Hashable, int] = {}
    same = [
        first.setdefault((one.is_dense, one.shape) if one.is_dense or one.is_diagonal else number, number)
        for number, one in enumerate(distinct)
    ]
    segments = np.argwhere(numbers[: n + 1, : n + 1] >= 0)
    begin, end = segments.T
    _, chosen, found = np.unique(
        2 * np.array(same, np.int64)[numbers[begin, end]] + sizes.chain.all_shared(segments),
        return_index=True,
        return_inverse=True,
    )
    classes = np.full((n + 1, n + 1), -1, np.int32)
    classes[begin, end] = found
    return classes, segments[chosen]
