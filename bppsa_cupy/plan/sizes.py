"""How large the products of a chain are: counted exactly before they are made, or read off a plan.

Rows are bit sets. M(begin, end) = a_{end-1}·M(begin, end - 1) takes nnz(a_{end-1}) unions of rows for each
element that is passed, and memory grows with rows and columns only.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numba
import numpy as np
import scipy.sparse
from tqdm import tqdm

from bppsa_cupy.csr import Pattern, index_dtype
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import bit_sets
from bppsa_cupy.plan.chain import Chain, Element
from bppsa_cupy.plan.product import Product, check_shapes, choose_kind, map_bytes
from bppsa_cupy.plan.schedule import KIND, Schedule, Segment, Step
from bppsa_cupy.system.interrupts import interruptible

#: Values of one segment at most, a petabyte: bytes of all segments are added up in 64 bits.
MOST_VALUES = 2**48
#: Bytes of one set of bit rows; wider products are counted in blocks of columns.
BLOCK_BYTES = 2**24
#: What tells a product from others: its factors, or the size of a diagonal.
Key = bytes | int


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


# ---- counting ----


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
        # Of the elements before each one, how many are no diagonal; and a number for each pattern.
        self._before = np.cumsum([0, 0, *(not e.pattern.is_diagonal for e in chain.elements)]).tolist()
        known: dict[str, int] = {}
        self._numbers = np.array([known.setdefault(p.digest, len(known)) for p in self._patterns], np.int32)
        self._equal_rows = EqualRows()
        self._counted: dict[Key, PatternSizes] = {}
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

    def _key(self, segment: Segment) -> Key:
        """Equal for segments of equal patterns in a row; a whole diagonal has its size."""
        begin, end = (self._before[k] for k in segment)
        return self._numbers[begin:end].tobytes() if begin < end else self._chain.length(segment[0])

    def _count(self, segments: Sequence[Segment], progress: bool = False) -> None:
        """Count what is not there yet."""
        wanted: dict[int, dict[int, Key]] = defaultdict(dict)  # by the first pattern: length -> key
        claimed: set[Key] = set()
        for segment in segments:
            key, (begin, end) = self._key(segment), (self._before[k] for k in segment)
            if key in self._counted or key in claimed:
                continue
            if isinstance(key, int):
                ones = np.ones(key, np.int64)
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
        bit_sets.unite_rows(
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
        bit_sets.weigh(self._bits, self._full, self.factor.rows.sizes, weights, self.lengths, partial)
        self.totals = partial.sum(0)[: self.columns]
        self._counted = True


# ---- equal rows, and equal columns, which count once ----
#
# A convolution's rows are the same for all input channels, and a pooling's for a whole window, so that
# products can be counted on a fraction of the rows: of equal rows of A, A·B has equal rows, and where rows
# of B are equal, an entry of A in one of them is as good as entries in all.


@dataclass(frozen=True, eq=False)
class Classes:
    """Which rows, or columns, are known to be equal.

    group  (size,) int32, the group of each, from 0 to groups - 1
    kept   (groups,) the first of each group, rising
    sizes  (groups,) int64, how many there are in each
    """

    group: np.ndarray
    kept: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, hashes: np.ndarray) -> Classes:
        """Those whose hashes (size, 2) are equal: two of n differ with a probability below n²·2⁻¹²⁸."""
        _, first, group, sizes = np.unique(
            hashes, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        order = np.argsort(first)
        rank = np.empty(order.size, np.int32)
        rank[order] = np.arange(order.size)
        return cls(rank[group], first[order], sizes[order])


@dataclass(frozen=True, eq=False)
class GroupedPattern:
    """A pattern with one row for each group of its rows and one column for each group of its columns.

    indptr   (row groups + 1,), indices, distinct inside a row
    rows     the groups of the pattern's rows
    """

    indptr: np.ndarray
    indices: np.ndarray
    rows: Classes


class EqualRows:
    """Patterns with their equal rows and columns grouped, each made once."""

    def __init__(self) -> None:
        self._classes: dict[bytes, Classes] = {}
        self._made: dict[tuple[str, int], GroupedPattern] = {}

    def of(self, pattern: Pattern, columns: Classes) -> GroupedPattern:
        """`pattern` with its columns grouped, and those of its rows that are equal then."""
        key = pattern.digest, id(columns)
        if key not in self._made:
            rows = self._hashed(pattern.indptr, pattern.indices, columns.group)
            matrix = scipy.sparse.csr_array(
                (np.ones(pattern.nnz, bool), pattern.indices, pattern.indptr), pattern.shape
            )[rows.kept]
            indices = columns.group[matrix.indices]
            shape = rows.kept.size, columns.kept.size
            grouped = scipy.sparse.csr_array((matrix.data, indices, matrix.indptr), shape)
            grouped.sum_duplicates()
            self._made[key] = GroupedPattern(_read_only(grouped.indptr), _read_only(grouped.indices), rows)
        return self._made[key]

    def columns(self, pattern: Pattern) -> Classes:
        """The groups of equal columns of a pattern."""
        each = np.arange(pattern.shape[1], dtype=np.int32)
        rows = self.of(pattern, self._one(Classes(each, each, np.ones(each.size, np.int64))))
        shape = rows.rows.kept.size, each.size
        ones = np.ones(rows.indices.size, bool)
        turned = scipy.sparse.csr_array((ones, rows.indices, rows.indptr), shape).T.tocsr()
        group = np.arange(shape[0], dtype=np.int32)
        return self._hashed(_read_only(turned.indptr), _read_only(turned.indices), group)

    def _hashed(self, indptr: np.ndarray, indices: np.ndarray, group: np.ndarray) -> Classes:
        hashes = np.empty((indptr.size - 1, 2), np.uint64)
        bit_sets.hash_rows(indptr, indices, _read_only(group), hashes)
        return self._one(Classes.of(hashes))

    def _one(self, classes: Classes) -> Classes:
        """The one object for all equal classes."""
        return self._classes.setdefault(classes.group.tobytes(), classes)


def _read_only(array: np.ndarray) -> np.ndarray:
    """The compiler has a type for arrays that are read alone, so each loop is compiled for one."""
    array.flags.writeable = False
    return array
