"""Exact sizes of products that have not been made: the planner counts before it multiplies.

Rows are bit sets. M(begin, end) = a_{end-1}·M(begin, end - 1) takes nnz(a_{end-1}) unions of rows for each
element that is passed, and memory grows with rows and columns only.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numba
import numpy as np
from tqdm import tqdm

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan import bit_sets
from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.product import choose_kind, map_bytes
from bppsa_cupy.plan.schedule import Segment, Step
from bppsa_cupy.plan.sizes import loops
from bppsa_cupy.plan.sizes.equal_rows import EqualRows, GroupedPattern
from bppsa_cupy.system.interrupts import interruptible

#: Bytes of one set of bit rows; wider products are counted in blocks of columns.
BLOCK_BYTES = 2**24
#: Stretches of patterns are told apart by polynomial hashes modulo this prime.
PRIME, BASE = 2**127 - 1, 0x9E3779B97F4A7C15F39CC0605CEDC835


@dataclass(frozen=True, eq=False)
class PatternSizes:
    """The sizes of a pattern, of one that is there or of a product that never was made.

    row_lengths    (rows,) int64, entries of each row
    column_counts  (columns,) int64, entries of each column
    is_diagonal    whether it is known to be the whole diagonal (a product, where all factors are)
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
    def of(cls, pattern: Pattern) -> PatternSizes:
        """The sizes of a pattern that is there."""
        columns = np.bincount(pattern.indices, minlength=pattern.shape[1])
        return cls(pattern.shape, pattern.row_lengths.astype(np.int64), columns, pattern.is_diagonal)


class ProductSizes(NamedTuple):
    """What a `Product` that is not made would have."""

    kind: str
    multiply_adds: int
    map_bytes: int


class Counting:
    """The source of a chain's sizes that counts; see `ChainSizes`.

    Diagonal elements change no pattern, and a stretch of patterns that comes again is counted once.
    """

    def __init__(self, chain: Chain, segments: np.ndarray | Sequence[Segment], progress: bool) -> None:
        self._chain = chain
        self._patterns = [e.pattern for e in chain.elements if not e.pattern.is_diagonal]
        # Of the elements before each one, how many are no diagonal; and the hashes of their patterns.
        self._before = np.cumsum([0, 0, *(not e.pattern.is_diagonal for e in chain.elements)]).tolist()
        self._prefixes, self._powers = [0], [1]
        for pattern in self._patterns:
            self._prefixes.append((self._prefixes[-1] * BASE + int(pattern.digest, 16)) % PRIME)
            self._powers.append(self._powers[-1] * BASE % PRIME)
        self._equal_rows = EqualRows()
        self._counted: dict[int, PatternSizes] = {}
        self._products: dict[tuple[int, int], ProductSizes] = {}
        wanted = np.asarray(segments, np.int64).reshape(-1, 2).tolist()
        self._count([(begin, end) for begin, end in wanted if begin], progress)

    def pattern(self, segment: Segment) -> PatternSizes:
        """The sizes of M(begin, end)."""
        key = self._key(segment)
        if key not in self._counted:
            self._count([segment])
        return self._counted[key]

    def numbers(self, segments: np.ndarray) -> np.ndarray:
        wanted = [(begin, end) for begin, end in segments.tolist()]
        keys = [self._key(segment) for segment in wanted]
        self._count([s for s, key in zip(wanted, keys, strict=True) if key not in self._counted])
        return np.unique([id(self._counted[key]) for key in keys], return_inverse=True)[1]

    def product(self, step: Step) -> ProductSizes:
        a, b = self.pattern(step.right), self.pattern(step.left)
        key = id(a), id(b)
        if key not in self._products:
            # Every entry of A in column k meets every entry of B in row k.
            terms = int(np.dot(a.column_counts, b.row_lengths))
            kind = choose_kind(a, b, terms)
            nnz = self.pattern(step.out).nnz if kind == "terms" else 0
            self._products[key] = ProductSizes(kind, terms, map_bytes(a, b, kind, nnz, terms))
        return self._products[key]

    def _key(self, segment: Segment) -> int:
        """Equal for segments of equal patterns in a row; negative for whole diagonals."""
        begin, end = (self._before[k] for k in segment)
        if begin == end:
            return -1 - self._chain.length(segment[0])
        return (self._prefixes[end] - self._prefixes[begin] * self._powers[end - begin]) % PRIME

    def _count(self, segments: Sequence[Segment], progress: bool = False) -> None:
        """Count what is not there yet."""
        wanted: dict[int, dict[int, int]] = defaultdict(dict)  # by the first pattern: length -> key
        claimed: set[int] = set()
        for segment in segments:
            key, (begin, end) = self._key(segment), (self._before[k] for k in segment)
            if key in self._counted or key in claimed:
                continue
            if key < 0:
                ones = np.ones(-1 - key, np.int64)
                self._counted[key] = PatternSizes((ones.size, ones.size), ones, ones, True)
            elif end == begin + 1:
                self._counted[key] = PatternSizes.of(self._patterns[begin])
            else:
                wanted[begin][end - begin] = key
                claimed.add(key)
        total = sum(map(len, wanted.values()))
        with tqdm(total=total, desc="counting", disable=not (progress and sys.stderr.isatty())) as bar:
            for begin, keys in wanted.items():
                interruptible()
                counted = count_products(self._equal_rows, self._patterns[begin:], keys)
                self._counted.update((keys[length], sizes) for length, sizes in counted.items())
                bar.update(len(keys))


def count_products(
    equal_rows: EqualRows, patterns: Sequence[Pattern], lengths: Collection[int]
) -> dict[int, PatternSizes]:
    """The sizes of patterns[length - 1] ⋯ patterns[0] for each of `lengths`, which are above 1.

    Equal rows and columns count once. Where products repeat (powers of one pattern that has filled in), they
    are one object.
    """
    columns = equal_rows.columns(patterns[0])
    factors = [equal_rows.of(patterns[0], columns)]
    for pattern in patterns[1 : max(lengths)]:
        factors.append(equal_rows.of(pattern, factors[-1].rows))
    most_rows = max(1, *(factor.rows.kept.size for factor in factors))
    width = 64 * max(1, BLOCK_BYTES // (8 * most_rows))
    blocks: dict[int, list[_Block]] = {length: [] for length in lengths}
    for first in range(0, columns.kept.size, width):
        span = slice(first, min(first + width, columns.kept.size))
        block = _Block(factors[0], span.stop - span.start)
        block.read(factors[0], first)
        for length, factor in enumerate(factors[1:], 2):
            block = block.times(factor)
            if length in blocks:
                block.count(columns.sizes[span])
                blocks[length].append(block)
    made: dict[tuple[int, ...], PatternSizes] = {}
    sizes = {}
    for length in sorted(blocks):
        key = tuple(map(id, blocks[length]))
        if key not in made or not key:
            rows = factors[length - 1].rows.group
            entries = sum((block.lengths[rows] for block in blocks[length]), np.zeros(rows.size, np.int64))
            totals = [block.totals for block in blocks[length]]
            each = np.concatenate([np.zeros(0, np.int64), *totals])[columns.group]
            made[key] = PatternSizes((entries.size, each.size), entries, each, False)
        sizes[length] = made[key]
    return sizes


class _Block:
    """Some columns of one product, a row for each group of its rows.

    lengths  (row groups,) entries of each row, once counted
    totals   (columns,) entries of each column, once counted
    """

    lengths: np.ndarray
    totals: np.ndarray

    def __init__(self, factor: GroupedPattern, columns: int) -> None:
        self.factor, self.columns = factor, columns
        self._bits = np.empty((factor.rows.kept.size, -(-columns // 64)), np.uint64)
        self._full = np.empty(len(self._bits), np.bool_)
        self._settled = self._counted = False

    def read(self, factor: GroupedPattern, first: int) -> None:
        """Set the bits to the columns of a single pattern from `first` on."""
        bit_sets.set_bits(factor.indptr, factor.indices, first, self.columns, self._bits, self._full)

    def times(self, factor: GroupedPattern) -> _Block:
        """The product of one more factor; itself where the product is what it was."""
        if self._settled and factor is self.factor:
            return self
        result = _Block(factor, self.columns)
        loops.unite_rows(
            factor.indptr, factor.indices, self._bits, self._full, self.columns, result._bits, result._full
        )
        self._settled = factor is self.factor and np.array_equal(result._bits, self._bits)
        return self if self._settled else result

    def count(self, column_sizes: np.ndarray) -> None:
        """Set `lengths` and `totals`; column_sizes (columns,) say for how many each column stands."""
        if self._counted:
            return
        rows, words = self._bits.shape
        weights = np.zeros(64 * words, np.int64)
        weights[: self.columns] = column_sizes
        self.lengths = np.empty(rows, np.int64)
        partial = np.zeros((4 * numba.get_num_threads(), 64 * words), np.int64)
        loops.weigh(self._bits, self._full, self.factor.rows.sizes, weights, self.lengths, partial)
        self.totals = partial.sum(0)[: self.columns]
        self._counted = True
