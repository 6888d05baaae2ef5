"""Exact sizes of products that have not been made: the planner counts before it multiplies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numba
import numpy as np

from bppsa_cupy.csr import Pattern, index_dtype
from bppsa_cupy.plan import bit_rows
from bppsa_cupy.plan.chain import Chain, Element
from bppsa_cupy.plan.schedule import Schedule, Segment, Step
from bppsa_cupy.plan.symbolic import check_shapes, choose_kind, map_bytes

#: Bytes of one set of bit rows; wider products are counted in blocks of columns.
BLOCK_BYTES = 2**27


@dataclass(frozen=True, eq=False)
class Counts:
    """The sizes of a pattern.

    row_lengths    (rows,) entries of each row
    column_counts  (columns,) entries of each column
    is_diagonal    whether it is known to be the whole diagonal (a product, where both factors are)
    """

    shape: tuple[int, int]
    row_lengths: np.ndarray
    column_counts: np.ndarray
    is_diagonal: bool

    @cached_property
    def nnz(self) -> int:
        """Number of entries."""
        return int(self.row_lengths.sum())

    @cached_property
    def is_selection(self) -> bool:
        """Whether every row has at most one entry."""
        return self.nnz == 0 or int(self.row_lengths.max()) <= 1

    @property
    def is_dense(self) -> bool:
        """Whether every element is an entry."""
        return self.nnz == self.shape[0] * self.shape[1]

    @classmethod
    def of(cls, pattern: Pattern) -> Counts:
        """The sizes of a pattern that is there."""
        columns = np.bincount(pattern.indices, minlength=pattern.shape[1])
        return cls(pattern.shape, pattern.row_lengths.astype(np.int64), columns, pattern.is_diagonal)


def multiply_adds(a: Counts, b: Counts) -> int:
    """The number of terms of A·B: every entry of A in column k meets every entry of B in row k."""
    return int(np.dot(a.column_counts, b.row_lengths))


def count(a: Pattern, b: Pattern) -> tuple[int, int]:
    """(nnz, multiply-adds) of A·B, exactly, in memory that grows with neither. Raises ShapeError."""
    check_shapes(a, b)
    chain = Chain((Element("B", b, True), Element("A", a, True)))
    counts = count_segments(chain, [(1, 2), (2, 3), (1, 3)])
    return counts[1, 3].nnz, multiply_adds(counts[2, 3], counts[1, 2])


def count_segments(chain: Chain, segments: Iterable[Segment]) -> dict[Segment, Counts]:
    """The sizes of M(begin, end) for each of `segments`, 1 <= begin < end <= n + 1.

    M(begin, end) = a_{end-1}·M(begin, end - 1) with rows as bit sets: nnz(a_{end-1}) unions of rows
    for each element that is passed. Segments of equal patterns are counted once.
    """
    names = [""] + [element.pattern.digest for element in chain.elements]
    found: dict[tuple[str, ...], Counts] = {}
    wanted: dict[int, set[int]] = defaultdict(set)
    segments = list(segments)
    for begin, end in segments:
        key = tuple(names[begin:end])
        if key not in found:
            found[key] = Counts.of(chain.elements[begin - 1].pattern)
            if end > begin + 1:
                wanted[begin].add(end)
    for begin, ends in wanted.items():
        for end, counts in _sweep(chain, begin, ends).items():
            found[tuple(names[begin:end])] = counts
    return {(begin, end): found[tuple(names[begin:end])] for begin, end in segments}


def _sweep(chain: Chain, begin: int, ends: set[int]) -> dict[int, Counts]:
    """The sizes of M(begin, end) for the `ends`, all beyond begin + 1."""
    patterns = [element.pattern for element in chain.elements[begin - 1 : max(ends) - 1]]
    columns = patterns[0].shape[1]
    all_words = -(-columns // 64)
    most_rows = max(pattern.shape[0] for pattern in patterns)
    words = max(1, min(all_words, BLOCK_BYTES // (8 * max(most_rows, 1))))
    chunks = numba.get_num_threads()
    lengths = {end: np.zeros(patterns[end - begin - 1].shape[0], np.int64) for end in ends}
    totals = {end: np.zeros(64 * all_words + 64 * words, np.int64) for end in ends}
    for first in range(0, all_words, words):
        bits = np.empty((patterns[0].shape[0], words), np.uint64)
        bit_rows.set_bits(patterns[0].indptr, patterns[0].indices, 64 * first, bits)
        for end, pattern in enumerate(patterns[1:], begin + 2):
            if not pattern.is_diagonal:
                united = np.empty((pattern.shape[0], words), np.uint64)
                bit_rows.unite_rows(pattern.indptr, pattern.indices, bits, united)
                bits = united
            if end in ends:
                block = totals[end][64 * first : 64 * (first + words)]
                bit_rows.count_bits(bits, chunks, lengths[end], block)
    return {
        end: Counts(
            (lengths[end].size, columns),
            lengths[end],
            totals[end][:columns],
            all(pattern.is_diagonal for pattern in patterns[: end - begin]),
        )
        for end in ends
    }


class ChainCounts:
    """A chain by its counts alone: what cost and memory are worked out from, before and after planning.

    counts  of every element and of every matrix segment that is asked for
    """

    def __init__(self, chain: Chain, counts: Mapping[Segment, Counts]) -> None:
        self.chain, self.counts = chain, counts
        self._multiply_adds: dict[tuple[int, int, int], int] = {}

    @classmethod
    def of(cls, chain: Chain, schedules: Iterable[Schedule]) -> ChainCounts:
        """Count every segment that one of `schedules` computes."""
        elements = [(k, k + 1) for k in range(1, len(chain) + 1)]
        products = [step.out for schedule in schedules for step in schedule.steps if step.kind == "mm"]
        return cls(chain, count_segments(chain, dict.fromkeys(elements + products)))

    def nnz(self, segment: Segment) -> int:
        """Entries of M(begin, end)."""
        return self.counts[segment].nnz

    def multiply_adds(self, step: Step) -> int:
        """The terms of a step for one sample."""
        if step.kind == "mv":
            return self.nnz(step.right)
        key = step.begin, step.split, step.end
        if key not in self._multiply_adds:
            self._multiply_adds[key] = multiply_adds(self.counts[step.right], self.counts[step.left])
        return self._multiply_adds[key]

    def kind(self, step: Step) -> str:
        """The kind of an "mm" step's product."""
        return choose_kind(self.counts[step.right], self.counts[step.left], self.multiply_adds(step))

    def map_bytes(self, step: Step) -> int:
        """Bytes of the maps of an "mm" step's product; 0 for "mv"."""
        if step.kind == "mv":
            return 0
        a, b = self.counts[step.right], self.counts[step.left]
        return map_bytes(a, b, self.kind(step), self.nnz(step.out), self.multiply_adds(step))

    def values_size(self, segment: Segment, batch_size: int) -> int:
        """Number of values a segment stores: (length, B), (nnz, B), or (nnz,) where it is shared."""
        begin, end = segment
        if begin == 0:
            return self.chain.length(end) * batch_size
        return self.nnz(segment) * (1 if self.chain.shared(begin, end) else batch_size)

    def index_bytes(self, schedule: Schedule) -> list[int]:
        """Bytes of all integers the schedule needs, patterns and maps, added up by level, (depth,).

        Equal patterns and equal products are counted once.
        """
        by_level = [0] * schedule.depth
        seen: set[tuple[int, ...]] = set()
        for step in schedule.steps:
            for segment in (step.left, step.right, step.out):
                if segment[0] > 0 and (id(self.counts[segment]),) not in seen:
                    seen.add((id(self.counts[segment]),))
                    counts = self.counts[segment]
                    itemsize = np.dtype(index_dtype(max(counts.nnz, *counts.shape))).itemsize
                    by_level[step.level] += (counts.nnz + counts.shape[0] + 1) * itemsize
            if step.kind == "mm":
                factors = id(self.counts[step.right]), id(self.counts[step.left])
                if factors not in seen:
                    seen.add(factors)
                    by_level[step.level] += self.map_bytes(step)
        return list(accumulate(by_level))
