"""What a chain's segments and steps take, whether they are planned or merely counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, Self

import numpy as np

from bppsa_cupy.csr import Pattern, index_dtype
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.chain import Chain, Element
from bppsa_cupy.plan.product import Product, check_shapes
from bppsa_cupy.plan.schedule import KIND, LEVEL, Schedule, Segment, Step
from bppsa_cupy.plan.sizes.counting import Counting, ProductSizes
from bppsa_cupy.plan.sizes.pattern_sizes import PatternSizes

#: Values of one segment at most, a petabyte: bytes of all segments are added up in 64 bits.
MOST_VALUES = 2**48


class Source(Protocol):
    """Where the sizes of a chain come from: `Counting` or `Planned`."""

    def pattern(self, segment: Segment) -> Pattern | PatternSizes:
        """The pattern of M(begin, end), or its sizes."""

    def numbers(self, segments: np.ndarray) -> np.ndarray:
        """(k,) a number for each of `segments` (k, 2), equal only where `pattern` gives equal ones."""

    def product(self, step: Step) -> Product | ProductSizes:
        """The product of an "mm" step, or its sizes."""


class ChainSizes:
    """Sizes of M(begin, end), 1 <= begin < end <= n + 1, and of the products that make them, in two forms:
    counted, before anything is made, or read off what was planned (`planned`).

    segments  (k, 2), counted at once, which is quicker than one by one; any other may be asked for. Those
              that begin at 0 are vectors, and left out
    progress  show a bar on a terminal
    """

    def __init__(
        self, chain: Chain, segments: np.ndarray | Sequence[Segment] = (), *, progress: bool = False
    ) -> None:
        self.chain = chain
        self._source: Source = Counting(chain, segments, progress)

    @classmethod
    def planned(
        cls,
        chain: Chain,
        patterns: Mapping[Segment, Pattern],
        products: Mapping[tuple[str, str], Product],
    ) -> Self:
        """The sizes of patterns and products that are there, or of their outlines; no array is looked at.

        patterns  of every segment that is computed
        products  by the digests of their factors
        The sizes raise PlanError where a segment is asked for that was not planned.
        """
        sizes = cls.__new__(cls)
        sizes.chain, sizes._source = chain, _Planned(patterns, products)
        return sizes

    @property
    def counting(self) -> Counting:
        """What has been counted, where sizes are not of what was planned."""
        assert isinstance(self._source, Counting)
        return self._source

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

    def map_bytes(self, step: Step) -> int:
        """Bytes of the maps of an "mm" step's product; 0 for the others."""
        return self._source.product(step).map_bytes if step.kind == "mm" else 0

    def values_size(self, segment: Segment, batch_size: int) -> int:
        """Number of values a segment stores: (length, B), (nnz, B), or (nnz,) where it is shared."""
        begin, end = segment
        if begin == 0:
            return self.chain.length(end) * batch_size
        return self.nnz(segment) * (1 if self.chain.shared(begin, end) else batch_size)

    def values_sizes(self, segments: np.ndarray, batch_size: int) -> np.ndarray:
        """(k,) `values_size` of each of `segments` (k, 2). Raises PlanError for a batch of which
        one takes more than MOST_VALUES."""
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

    def pattern_bytes(self, segment: Segment) -> int:
        """Bytes of the pattern of M(begin, end)."""
        nnz, rows, columns = self.nnz(segment), self.chain.length(segment[1]), self.chain.length(segment[0])
        return (nnz + rows + 1) * np.dtype(index_dtype(max(nnz, rows, columns))).itemsize

    def index_bytes(self, schedule: Schedule) -> list[int]:
        """Bytes of all integers the schedule needs, patterns and maps, added up by level, (depth,).

        Equal patterns and equal products are counted once.
        """
        by_level = np.zeros(schedule.depth, np.int64)
        level = schedule.table[:, LEVEL]
        segments = np.stack([schedule.left, schedule.right, schedule.out], 1)
        inner = segments[..., 0] > 0
        inner[schedule.crossed, 1] = False
        numbers = np.full(inner.shape, -1)
        numbers[inner] = self.pattern_numbers(segments[inner])
        _, first = np.unique(numbers[inner], return_index=True)
        sizes = [self.pattern_bytes((begin, end)) for begin, end in segments[inner][first].tolist()]
        np.add.at(by_level, np.broadcast_to(level[:, None], inner.shape)[inner][first], sizes)
        products = np.flatnonzero(schedule.table[:, KIND])
        _, first = np.unique(numbers[products, :2], axis=0, return_index=True)
        sizes = [self.map_bytes(schedule.step(position)) for position in products[first]]
        np.add.at(by_level, level[products[first]], sizes)
        return np.cumsum(by_level).tolist()


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
