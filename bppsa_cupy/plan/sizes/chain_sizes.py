"""Sizes of a chain's segments and steps, whether they are planned or only counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from bppsa_cupy.csr import Pattern, index_dtype
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.chain import Chain, Element
from bppsa_cupy.plan.product import Product, check_shapes
from bppsa_cupy.plan.schedule import KIND, Schedule, Segment, Step
from bppsa_cupy.plan.sizes.counting import Counting

#: Values of one segment at most, a petabyte: bytes of all segments are added up in 64 bits.
MOST_VALUES = 2**48


class ChainSizes:
    """Sizes of M(begin, end), 1 <= begin < end <= n + 1, and of the products that make them.

    They are counted before anything is made, or read off what was planned (`planned`).

    segments  (k, 2), counted at once, which is quicker than one by one; any other may be asked for. Those
              that begin at 0 are vectors, and left out
    progress  show a bar on a terminal
    """

    def __init__(
        self, chain: Chain, segments: np.ndarray | Sequence[Segment] = (), *, progress: bool = False
    ) -> None:
        self.chain = chain
        self._source: Counting | _Planned = Counting(chain, segments, progress)

    @classmethod
    def planned(
        cls,
        chain: Chain,
        patterns: Mapping[Segment, Pattern],
        products: Mapping[tuple[str, str], Product],
    ) -> Self:
        """The sizes of patterns and products that are there.

        patterns  of every segment that is computed
        products  by the digests of their factors
        The sizes raise PlanError where a segment is asked for that was not planned.
        """
        sizes = cls.__new__(cls)
        sizes.chain, sizes._source = chain, _Planned(patterns, products)
        return sizes

    def nnz(self, segment: Segment) -> int:
        """Entries of M(begin, end)."""
        return self._source.pattern(segment).nnz

    def pattern_numbers(self, segments: np.ndarray) -> np.ndarray:
        """(k,) numbers from 0 on of `segments` (k, 2), equal only where patterns are."""
        return self._source.numbers(segments)

    def multiply_adds(self, step: Step) -> int:
        """The terms of a step for one sample."""
        if step.kind == "vjp":
            return self.chain.elements[step.split - 1].vjp_terms
        return self.nnz(step.right) if step.kind == "mv" else self._source.product(step).multiply_adds

    def kind(self, step: Step) -> str:
        """The kind of an "mm" step's product."""
        return self._source.product(step).kind

    def values_sizes(self, segments: np.ndarray, batch_size: int) -> np.ndarray:
        """(k,) values that each of `segments` (k, 2) stores: (length, B), (nnz, B), or (nnz,) where shared.

        Raises PlanError for a batch of which one takes more than MOST_VALUES.
        """
        each = self.chain.lengths[segments[:, 1]]
        copies = np.ones(len(segments), bool)
        inner = segments[:, 0] > 0
        matrices = segments[inner]
        _, first, which = np.unique(self.pattern_numbers(matrices), return_index=True, return_inverse=True)
        nnz = np.array([self.nnz((begin, end)) for begin, end in matrices[first].tolist()], np.int64)[which]
        each[inner], copies[inner] = nnz, ~self.chain.all_shared(matrices)
        largest = int(each[copies].max(initial=0))
        if largest * batch_size > MOST_VALUES:
            raise PlanError(
                f"a batch of {batch_size} was asked for: a matrix or vector of the scan holds {largest} "
                f"values a sample, so it takes at most {MOST_VALUES // largest}"
            )
        return np.where(copies, each * batch_size, each)

    def index_bytes(self, schedule: Schedule) -> int:
        """Bytes of all integers the schedule needs: each different pattern and product counts once."""
        segments = np.stack([schedule.left, schedule.right, schedule.out], 1)
        inner = segments[..., 0] > 0
        inner[schedule.crossed, 1] = False
        numbers = np.full(inner.shape, -1)
        numbers[inner] = self.pattern_numbers(segments[inner])
        _, first = np.unique(numbers[inner], return_index=True)
        total = 0
        for begin, end in segments[inner][first].tolist():
            nnz, rows, columns = self.nnz((begin, end)), self.chain.length(end), self.chain.length(begin)
            total += (nnz + rows + 1) * np.dtype(index_dtype(max(nnz, rows, columns))).itemsize
        products = np.flatnonzero(schedule.table[:, KIND])
        _, first = np.unique(numbers[products, :2], axis=0, return_index=True)
        return total + sum(self._source.product(schedule.step(k)).map_bytes for k in products[first])


def count(a: Pattern, b: Pattern) -> tuple[int, int]:
    """(nnz, multiply-adds) of A·B, exactly, in memory that grows with neither. Raises ShapeError."""
    check_shapes(a, b)
    sizes = ChainSizes(Chain((Element("B", b, True), Element("A", a, True))))
    return sizes.nnz((1, 3)), sizes.multiply_adds(Step(0, 1, 2, 3, "mm"))


class _Planned:
    """The source of sizes that are read off patterns and products."""

    def __init__(
        self, patterns: Mapping[Segment, Pattern], products: Mapping[tuple[str, str], Product]
    ) -> None:
        self._patterns, self._products = patterns, products

    def pattern(self, segment: Segment) -> Pattern:
        if segment not in self._patterns:
            raise PlanError(f"segment [{segment[0]}, {segment[1]}) was not planned")
        return self._patterns[segment]

    def numbers(self, segments: np.ndarray) -> np.ndarray:
        numbers: dict[str, int] = {}
        digests = (self.pattern((begin, end)).digest for begin, end in segments.tolist())
        return np.array([numbers.setdefault(digest, len(numbers)) for digest in digests], np.int64)

    def product(self, step: Step) -> Product:
        return self._products[self.pattern(step.right).digest, self.pattern(step.left).digest]
