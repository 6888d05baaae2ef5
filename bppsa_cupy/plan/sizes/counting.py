"""Exact sizes of products that have not been made: the planner counts before it multiplies."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.product import choose_kind, map_bytes
from bppsa_cupy.plan.schedule import Segment, Step
from bppsa_cupy.plan.sizes.equal_rows import EqualRows
from bppsa_cupy.plan.sizes.equal_segments import EqualSegments
from bppsa_cupy.plan.sizes.pattern_sizes import PatternSizes, multiply_adds
from bppsa_cupy.plan.sizes.sweep import sweep
from bppsa_cupy.system.interrupts import interruptible


class ProductSizes(NamedTuple):
    """What a `Product` that is not made would have."""

    kind: str
    multiply_adds: int
    map_bytes: int


class Counting:
    """The source of a chain's sizes that counts; see `ChainSizes`.

    Each pattern is counted once, wherever it comes again. Method: M(begin, end) = a_{end-1}·M(begin, end - 1)
    with rows as bit sets, equal rows and columns taken once: nnz(a_{end-1}) unions of rows for each element
    that is passed.
    """

    def __init__(self, chain: Chain, segments: np.ndarray | Sequence[Segment], progress: bool) -> None:
        self._n = len(chain)
        self._equal_segments = EqualSegments(chain)
        self._equal_rows = EqualRows()
        self._counted: dict[int, PatternSizes] = {}
        self._asked: dict[Segment, PatternSizes] = {}
        self._products: dict[tuple[int, int], ProductSizes] = {}
        wanted = np.array(segments, np.int64).reshape(-1, 2)
        codes = self._equal_segments.codes(wanted[wanted[:, 0] > 0])
        self._count(codes[np.sort(np.unique(codes, return_index=True)[1])].tolist(), progress)

    def pattern(self, segment: Segment) -> PatternSizes:
        """The sizes of M(begin, end)."""
        if segment not in self._asked:
            (self._asked[segment],) = self._of_codes([self._equal_segments.code(segment)])
        return self._asked[segment]

    def numbers(self, segments: np.ndarray) -> np.ndarray:
        codes, which = np.unique(self._equal_segments.codes(segments), return_inverse=True)
        patterns = [id(one) for one in self._of_codes(codes.tolist())]
        return np.unique(patterns, return_inverse=True)[1][which]

    def product(self, step: Step) -> ProductSizes:
        a, b = self.pattern(step.right), self.pattern(step.left)
        key = id(a), id(b)
        if key not in self._products:
            terms = multiply_adds(a, b)
            kind = choose_kind(a, b, terms)
            nnz = self.pattern(step.out).nnz if kind == "terms" else 0
            self._products[key] = ProductSizes(kind, terms, map_bytes(a, b, kind, nnz, terms))
        return self._products[key]

    def everything(self) -> tuple[np.ndarray, list[PatternSizes]]:
        """All that has been counted, as an array: for search over many segments.

        Returns numbers (n + 2, n + 2) int32 and a list; list[numbers[begin, end]] is
        `pattern((begin, end))`, and -1 stands where nothing has been counted.
        """
        distinct = {id(sizes): sizes for sizes in self._counted.values()}
        position = {key: number for number, key in enumerate(distinct)}
        numbers = np.full((self._n + 2, self._n + 2), -1, np.int32)
        segments = np.stack(np.triu_indices(self._n + 1, 1), 1) + 1
        codes, which = np.unique(self._equal_segments.codes(segments), return_inverse=True)
        found = [position[id(self._counted[c])] if c in self._counted else -1 for c in codes.tolist()]
        numbers[tuple(segments.T)] = np.array(found, np.int32)[which]
        return numbers, list(distinct.values())

    def _of_codes(self, codes: Sequence[int]) -> list[PatternSizes]:
        self._count([code for code in codes if code not in self._counted])
        return [self._counted[code] for code in codes]

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
