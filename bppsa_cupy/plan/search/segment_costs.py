"""What every product over every segment of a chain costs: the table the schedule search works on."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.cost.model import CostModel
from bppsa_cupy.plan.cost.schedule_cost import step_cost
from bppsa_cupy.plan.schedule import Segment, Step
from bppsa_cupy.plan.search import loops as search_loops
from bppsa_cupy.plan.sizes.counted import ChainCounts

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
    values   (classes,) int64: values a matrix stores
    """

    classes: np.ndarray
    mm: np.ndarray
    mv: np.ndarray
    values: np.ndarray

    @property
    def n(self) -> int:
        """The number of matrices."""
        return self.classes.shape[0] - 1

    @classmethod
    def of(cls, counts: ChainCounts, batch_size: int, itemsize: int, model: CostModel) -> SegmentCosts:
        """The costs of a chain, by `step_cost`, over the segments that have been counted."""
        classes, members = _classes(counts)
        mv = np.zeros(len(members))
        for number, (k, j) in enumerate(members):
            mv[number] = step_cost(counts, Step(0, 0, k, j, "mv"), batch_size, itemsize, model).seconds
        pairs = np.zeros((len(members), len(members), 3), np.int16)
        search_loops.find_pairs(classes, pairs)
        mm = np.full((len(members), len(members)), np.inf)
        for left, right in np.argwhere(pairs[..., 0]):
            begin, split, end = pairs[left, right].tolist()
            step = Step(0, begin, split, end, "mm")
            mm[left, right] = step_cost(counts, step, batch_size, itemsize, model).seconds
        values = np.array([counts.values_size(member, batch_size) for member in members], np.int64)
        return cls(classes, mm, mv, values)

    def seconds(self, splits: np.ndarray, segments: np.ndarray) -> np.ndarray:
        """(steps,) seconds of the products that make `segments` (steps, 2) by `splits` (n + 1, n + 1)."""
        begin, end = segments.T
        split = splits[begin, end]
        right = self.classes[split, end]
        result = self.mv[right]
        inner = begin > 0
        result[inner] = self.mm[self.classes[begin[inner], split[inner]], right[inner]]
        return result


def searched_segments(chain: Chain) -> list[Segment]:
    """The matrix segments a schedule of `chain` may compute, elements included.

    All that are not dead, [i, j) with 1 <= i < j <= n; of long chains of many different elements, whose
    counting would take too long, those of algorithm 1, which begin at a multiple of their power of two.
    """
    n = len(chain)
    different = {(element.pattern.digest, element.shared) for element in chain.elements}
    elements = [(k, k + 1) for k in range(1, n + 1)]
    if n <= FEW_ELEMENTS or len(different) <= FEW_PATTERNS:
        return elements + [(i, j) for i in range(1, n) for j in range(i + 2, n + 1)]
    sizes = [2**d for d in range(1, n.bit_length())]
    return elements + [(i, i + size) for size in sizes for i in range(size, n + 1 - size, size)]


def _classes(counts: ChainCounts) -> tuple[np.ndarray, list[Segment]]:
    """`SegmentCosts.classes`, and a segment of each class.

    Segments of one class have one pattern, known by its count or by its structure.
    """
    n = len(counts.chain)
    numbers, sizes = counts.numbers()
    first: dict[Hashable, int] = {}
    same = [
        first.setdefault((one.is_dense, one.shape) if one.is_dense or one.is_diagonal else number, number)
        for number, one in enumerate(sizes)
    ]
    not_shared = np.cumsum([0, 0, *(not element.shared for element in counts.chain.elements)])
    begin, end = np.nonzero(numbers[: n + 1, : n + 1] >= 0)
    shared = not_shared[begin] == not_shared[end]
    _, chosen, found = np.unique(
        2 * np.array(same, np.int64)[numbers[begin, end]] + shared, return_index=True, return_inverse=True
    )
    classes = np.full((n + 1, n + 1), -1, np.int32)
    classes[begin, end] = found
    return classes, [(int(begin[at]), int(end[at])) for at in chosen]
