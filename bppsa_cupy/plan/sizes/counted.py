"""Exact sizes of products that have not been made: the planner counts before it multiplies."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
from tqdm import tqdm

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan.chain import Chain, Element
from bppsa_cupy.plan.product.symbolic import check_shapes, choose_kind, map_bytes
from bppsa_cupy.plan.schedule import Schedule, Segment, Step
from bppsa_cupy.plan.sizes.chain_sizes import ChainSizes
from bppsa_cupy.plan.sizes.counts import Counts, multiply_adds
from bppsa_cupy.plan.sizes.equal_rows import Quotients
from bppsa_cupy.plan.sizes.equal_segments import Place, Repeats
from bppsa_cupy.plan.sizes.sweep import sweep
from bppsa_cupy.system.interrupts import interruptible


def count(a: Pattern, b: Pattern) -> tuple[int, int]:
    """(nnz, multiply-adds) of A·B, exactly, in memory that grows with neither. Raises ShapeError."""
    check_shapes(a, b)
    counts = ChainCounts(Chain((Element("B", b, True), Element("A", a, True))))
    return counts.nnz((1, 3)), multiply_adds(counts.of_segment((2, 3)), counts.of_segment((1, 2)))


class ChainCounts(ChainSizes):
    """A chain by its counts alone: what cost and memory are worked out from, before anything is made.

    Any segment may be asked for. `of` and `of_all` count many at once, which is quicker than one by one;
    each pattern is counted once, wherever it comes again.

    Method: M(begin, end) = a_{end-1}·M(begin, end - 1) with rows as bit sets, without the repetition in
    rows and columns (`quotient`): nnz(a_{end-1}) unions of rows for each element that is passed.
    """

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self._repeats = Repeats(chain)
        self._quotients = Quotients()
        self._counts: dict[Place, Counts] = {}
        self._multiply_adds: dict[tuple[int, int], int] = {}

    @classmethod
    def of(cls, chain: Chain, schedules: Iterable[Schedule], *, progress: bool = False) -> ChainCounts:
        """Count every segment that one of `schedules` computes; `progress` shows a bar on a terminal."""
        starts = np.arange(1, len(chain) + 1)
        segments = [np.stack([starts, starts + 1], 1), *(schedule.out for schedule in schedules)]
        return cls.of_segments(chain, np.vstack(segments), progress=progress)

    @classmethod
    def of_segments(
        cls, chain: Chain, segments: np.ndarray | Sequence[Segment], *, progress: bool = False
    ) -> ChainCounts:
        """Count these segments, (k, 2); those that begin at 0 are vectors, and left out."""
        counts = cls(chain)
        wanted = np.array(segments, np.int64).reshape(-1, 2)
        wanted = wanted[wanted[:, 0] > 0]
        _, first = np.unique(counts._repeats.codes(wanted), return_index=True)
        counts._count((counts._repeats.place((i, j)) for i, j in wanted[np.sort(first)].tolist()), progress)
        return counts

    @classmethod
    def of_all(cls, chain: Chain, *, progress: bool = False) -> ChainCounts:
        """Count all segments [begin, end), 1 <= begin < end <= n + 1."""
        counts = cls(chain)
        counts._count(counts._repeats.all_places(), progress)
        return counts

    def of_segment(self, segment: Segment) -> Counts:
        """The sizes of M(begin, end)."""
        place = self._repeats.place(segment)
        if place not in self._counts:
            self._count([place])
        return self._counts[place]

    def numbers(self) -> tuple[np.ndarray, list[Counts]]:
        """All that has been counted, as an array: for search over many segments.

        Returns numbers (n + 2, n + 2) int32 and a list; list[numbers[begin, end]] is
        `of_segment((begin, end))`, and -1 stands where nothing has been counted.
        """
        n, patterns = len(self.chain), len(self._repeats.patterns)
        distinct = {id(counts): counts for counts in self._counts.values()}
        position = {key: number for number, key in enumerate(distinct)}
        products = np.full((patterns + 1, patterns + 1), -1, np.int32)
        diagonals: dict[int, int] = {}
        for (i, j, size), counts in self._counts.items():
            if i < j:
                products[i, j] = position[id(counts)]
            else:
                diagonals[size] = position[id(counts)]
        first, last = self._repeats.all_starts()
        by_begin = np.array([-1, *(diagonals.get(self.chain.length(k), -1) for k in range(1, n + 2))])
        numbers = np.where(first < last, products[first, last], by_begin[:, None]).astype(np.int32)
        numbers[~np.triu(np.ones(numbers.shape, bool), 1)] = -1
        numbers[0] = -1
        return numbers, list(distinct.values())

    def nnz(self, segment: Segment) -> int:
        return self.of_segment(segment).nnz

    def multiply_adds(self, step: Step) -> int:
        if step.kind == "mv":
            return self.nnz(step.right)
        a, b = self.of_segment(step.right), self.of_segment(step.left)
        key = id(a), id(b)
        if key not in self._multiply_adds:
            self._multiply_adds[key] = multiply_adds(a, b)
        return self._multiply_adds[key]

    def kind(self, step: Step) -> str:
        return choose_kind(self.of_segment(step.right), self.of_segment(step.left), self.multiply_adds(step))

    def map_bytes(self, step: Step) -> int:
        if step.kind == "mv":
            return 0
        a, b = self.of_segment(step.right), self.of_segment(step.left)
        return map_bytes(a, b, self.kind(step), self.nnz(step.out), self.multiply_adds(step))

    def pattern_key(self, segment: Segment) -> Hashable:
        return id(self.of_segment(segment))

    def pattern_numbers(self, segments: np.ndarray) -> np.ndarray:
        _, first, which = np.unique(self._repeats.codes(segments), return_index=True, return_inverse=True)
        return super().pattern_numbers(segments[first])[which]

    # ---- counting ----

    def _count(self, places: Iterable[Place], progress: bool = False) -> None:
        """Count what is not there yet."""
        wanted: dict[int, set[int]] = defaultdict(set)
        patterns = self._repeats.patterns
        for begin, end, size in places:
            if (begin, end, size) in self._counts:
                continue
            if begin == end:
                self._counts[begin, end, size] = Counts.diagonal(size)
            elif end == begin + 1:
                self._counts[begin, end, size] = Counts.of(patterns[begin])
            else:
                wanted[begin].add(end)
        total = sum(len(ends) for ends in wanted.values())
        with tqdm(total=total, desc="counting", disable=not (progress and sys.stderr.isatty())) as bar:
            for begin, ends in wanted.items():
                interruptible()
                counted = sweep(self._quotients, patterns[begin:], {end - begin for end in ends})
                self._counts.update(((begin, begin + size, 0), counts) for size, counts in counted.items())
                bar.update(len(ends))
