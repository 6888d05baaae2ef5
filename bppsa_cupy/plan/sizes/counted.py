"""Exact sizes of products that have not been made: the planner counts before it multiplies."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from tqdm import tqdm

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan.chain import Chain, Element
from bppsa_cupy.plan.product import check_shapes, choose_kind, map_bytes
from bppsa_cupy.plan.schedule import Segment, Step
from bppsa_cupy.plan.sizes.chain_sizes import ChainSizes
from bppsa_cupy.plan.sizes.equal_rows import EqualRows
from bppsa_cupy.plan.sizes.equal_segments import EqualSegments
from bppsa_cupy.plan.sizes.pattern_sizes import PatternSizes, multiply_adds
from bppsa_cupy.plan.sizes.sweep import sweep
from bppsa_cupy.system.interrupts import interruptible


def count(a: Pattern, b: Pattern) -> tuple[int, int]:
    """(nnz, multiply-adds) of A·B, exactly, in memory that grows with neither. Raises ShapeError."""
    check_shapes(a, b)
    sizes = CountedSizes(Chain((Element("B", b, True), Element("A", a, True))))
    return sizes.nnz((1, 3)), sizes.multiply_adds(Step(0, 1, 2, 3, "mm"))


class CountedSizes(ChainSizes):
    """The sizes of a chain by counting: what cost and memory are worked out from, before anything is made.

    segments  (k, 2), counted at once, which is quicker than one by one; any other may be asked for. Those
              that begin at 0 are vectors, and left out
    progress  show a bar on a terminal

    Each pattern is counted once, wherever it comes again. Method: M(begin, end) = a_{end-1}·M(begin, end - 1)
    with rows as bit sets, equal rows and columns taken once: nnz(a_{end-1}) unions of rows for each element
    that is passed.
    """

    def __init__(
        self, chain: Chain, segments: np.ndarray | Sequence[Segment] = (), *, progress: bool = False
    ) -> None:
        self.chain = chain
        self._equal_segments = EqualSegments(chain)
        self._equal_rows = EqualRows()
        self._counted: dict[int, PatternSizes] = {}
        self._multiply_adds: dict[tuple[int, int], int] = {}
        wanted = np.array(segments, np.int64).reshape(-1, 2)
        codes = self._equal_segments.codes(wanted[wanted[:, 0] > 0])
        self._count(codes[np.sort(np.unique(codes, return_index=True)[1])].tolist(), progress)

    def of_segment(self, segment: Segment) -> PatternSizes:
        """The sizes of M(begin, end)."""
        code = self._equal_segments.code(segment)
        if code not in self._counted:
            self._count([code])
        return self._counted[code]

    def numbers(self) -> tuple[np.ndarray, list[PatternSizes]]:
        """All that has been counted, as an array: for search over many segments.

        Returns numbers (n + 2, n + 2) int32 and a list; list[numbers[begin, end]] is
        `of_segment((begin, end))`, and -1 stands where nothing has been counted.
        """
        distinct = {id(sizes): sizes for sizes in self._counted.values()}
        position = {key: number for number, key in enumerate(distinct)}
        n = len(self.chain)
        numbers = np.full((n + 2, n + 2), -1, np.int32)
        segments = np.stack(np.triu_indices(n + 1, 1), 1) + 1
        codes, which = np.unique(self._equal_segments.codes(segments), return_inverse=True)
        found = [position[id(self._counted[c])] if c in self._counted else -1 for c in codes.tolist()]
        numbers[tuple(segments.T)] = np.array(found, np.int32)[which]
        return numbers, list(distinct.values())

    def nnz(self, segment: Segment) -> int:
        return self.of_segment(segment).nnz

    def multiply_adds(self, step: Step) -> int:
        if step.kind == "mv":
            return self.nnz(step.right)
        a, b = self._factors(step)
        key = id(a), id(b)
        if key not in self._multiply_adds:
            self._multiply_adds[key] = multiply_adds(a, b)
        return self._multiply_adds[key]

    def kind(self, step: Step) -> str:
        return choose_kind(*self._factors(step), self.multiply_adds(step))

    def map_bytes(self, step: Step) -> int:
        if step.kind == "mv":
            return 0
        return map_bytes(*self._factors(step), self.kind(step), self.nnz(step.out), self.multiply_adds(step))

    def pattern_numbers(self, segments: np.ndarray) -> np.ndarray:
        codes = self._equal_segments.codes(segments)
        _, first, which = np.unique(codes, return_index=True, return_inverse=True)
        patterns = [id(self.of_segment((begin, end))) for begin, end in segments[first].tolist()]
        return np.unique(patterns, return_inverse=True)[1][which]

    def _factors(self, step: Step) -> tuple[PatternSizes, PatternSizes]:
        """A and B of an "mm" step."""
        return self.of_segment(step.right), self.of_segment(step.left)

    def _count(self, codes: Sequence[int], progress: bool = False) -> None:
        """Count what is not there yet; `codes` are of `EqualSegments`."""
        wanted: dict[int, dict[int, int]] = defaultdict(dict)  # by first pattern: number of them -> code
        patterns = self._equal_segments.patterns
        for code in codes:
            begin, end = self._equal_segments.stretch(code)
            if code < 0:
                self._counted[code] = PatternSizes.diagonal(-1 - code)
            elif end == begin + 1:
                self._counted[code] = PatternSizes.of(patterns[begin])
            else:
                wanted[begin][end - begin] = code
        total = sum(map(len, wanted.values()))
        with tqdm(total=total, desc="counting", disable=not (progress and sys.stderr.isatty())) as bar:
            for begin, of_length in wanted.items():
                interruptible()
                counted = sweep(self._equal_rows, patterns[begin:], of_length)
                self._counted.update((of_length[length], sizes) for length, sizes in counted.items())
                bar.update(len(of_length))
