"""A chain of transposed Jacobians by pattern alone, how large its products are, and the memory of a scan.

Sizes are counted exactly before the products are made, or read off a plan.

Rows are bit sets. M(begin, end) = a_{end-1}·M(begin, end - 1) takes nnz(a_{end-1}) unions of rows for each
element that is passed, and memory grows with rows and columns only.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numba
import numpy as np
from tqdm import tqdm

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError, ShapeError
from bppsa_cupy.plan import loops
from bppsa_cupy.plan.partition import Partition, RankSchedule, place
from bppsa_cupy.plan.product import Product, choose_kind, multiply
from bppsa_cupy.plan.schedule import BEGIN, END, LEVEL, SPLIT, Schedule, Segment, Step, with_input_gradient

#: Values of one segment at most, a petabyte: bytes of all segments are added up in 64 bits.
MOST_VALUES = 2**48
#: Bytes of one set of bit rows; wider products are counted in blocks of columns.
BLOCK_BYTES = 2**24
#: What tells a product from others: its factors, or the size of a diagonal.
Key = bytes | int


@dataclass(frozen=True)
class Element:
    """One matrix of the input array of the scan.

    Attributes
    ----------
    name : str
        The name in pictures and errors: "3 Conv2d", or "5.body.0 Conv2d" inside a block.
    pattern : Pattern
        The pattern of the transposed Jacobian, (d_in, d_out).
    shared : bool
        Whether all samples share one set of values, (nnz,).
    vjp_multiply_adds : int or None
        Multiply-adds per sample of the VJP of the layer, if they differ from nnz: a pruned convolution runs
        dense.
    item : int
        The index of the item that a `Partition` assigns to a rank: a layer of the network, or a matrix of the
        chain.
    """

    name: str
    pattern: Pattern
    shared: bool
    vjp_multiply_adds: int | None = None
    item: int = 0

    @property
    def matrix(self) -> tuple[str, bool, int | None]:
        """The facts that a plan depends on: the pattern's digest, `shared` and `vjp_multiply_adds`."""
        return self.pattern.digest, self.shared, self.vjp_multiply_adds

    @property
    def vjp_terms(self) -> int:
        """Multiply-adds of the layer's own VJP of one sample."""
        return self.pattern.nnz if self.vjp_multiply_adds is None else self.vjp_multiply_adds


@dataclass(frozen=True)
class Chain:
    """The matrices a_1 … a_n of equation 5, from the last layer's Jacobian to the first one's.

    Element k, 1 <= k <= n, is `elements[k - 1]`; element 0 is the gradient vector by the output.
    Raises ShapeError where neighbours' sizes do not fit: rows of a_k must be columns of a_{k+1}.
    """

    elements: tuple[Element, ...]

    def __post_init__(self) -> None:
        for k, (nearer, farther) in enumerate(zip(self.elements, self.elements[1:], strict=False), 1):
            if nearer.pattern.shape[0] != farther.pattern.shape[1]:
                raise ShapeError(
                    f"element {k} ({nearer.name}) has {nearer.pattern.shape[0]} rows, but element {k + 1} "
                    f"({farther.name}) has {farther.pattern.shape[1]} columns: both numbers must be equal"
                )

    def __len__(self) -> int:
        return len(self.elements)

    def shared(self, begin: int, end: int) -> bool:
        """Whether one set of values of M(begin, end) serves every sample: all its elements are shared."""
        return begin > 0 and bool(self._not_shared[begin] == self._not_shared[end])

    def length(self, k: int) -> int:
        """Number of elements of the vector v(k), 1 <= k <= n + 1; 0 where the chain is empty."""
        return int(self.lengths[k])

    def owners(self, partition: Partition) -> tuple[int, ...]:
        """The rank of each element."""
        return tuple(int(partition.owners[element.item]) for element in self.elements)

    @cached_property
    def lengths(self) -> np.ndarray:
        """(n + 2,) `length` of every k, from 1 on."""
        inner = (element.pattern.shape[1] for element in self.elements)
        last = self.elements[-1].pattern.shape[0] if self.elements else 0
        return np.array([0, *inner, last], np.int64)

    @cached_property
    def _not_shared(self) -> np.ndarray:
        """(n + 2,) how many of the elements before the k-th are not shared."""
        return np.cumsum([0, 0, *(not element.shared for element in self.elements)])


class ChainSizes:
    """Sizes of M(begin, end), 1 <= begin < end <= n + 1, and of the products that make them, counted before
    anything is made.

    Diagonal elements change no pattern, and a stretch of patterns that comes again is counted once.

    `segments` (k, 2) are counted at once, which is faster than one by one; other segments may be asked for
    later. Segments that begin at 0 are vectors and are skipped. `progress` shows a bar on a terminal.
    """

    def __init__(
        self, chain: Chain, segments: np.ndarray | Sequence[Segment] = (), *, progress: bool = False
    ) -> None:
        self.chain = chain
        self._elements = [e.pattern for e in chain.elements if not e.pattern.is_diagonal]
        # Of the elements before each one, how many are no diagonal; and a number for each pattern.
        self._before = np.cumsum([0, 0, *(not e.pattern.is_diagonal for e in chain.elements)]).tolist()
        known: dict[str, int] = {}
        self._numbers = np.array([known.setdefault(p.digest, len(known)) for p in self._elements], np.int32)
        self._counted: dict[Key, PatternSizes] = {}
        self._products: dict[tuple[int, int], ProductSizes] = {}
        wanted = np.asarray(segments, np.int64).reshape(-1, 2).tolist()
        self._count([(begin, end) for begin, end in wanted if begin], progress)

    def pattern(self, segment: Segment) -> Any:
        """The sizes of M(begin, end)."""
        key = self._key(segment)
        if key not in self._counted:
            self._count([segment])
        return self._counted[key]

    def product(self, step: Step) -> Any:
        """The product of an "mm" step."""
        a, b = self.pattern(step.right), self.pattern(step.left)
        key = id(a), id(b)
        if key not in self._products:
            # Every entry of A in column k meets every entry of B in row k.
            terms = int(np.dot(a.column_counts, b.row_lengths))
            self._products[key] = ProductSizes(choose_kind(a, b, terms), terms)
        return self._products[key]

    def nnz(self, segment: Segment) -> int:
        """Entries of M(begin, end)."""
        return self.pattern(segment).nnz

    def multiply_adds(self, step: Step) -> int:
        """The terms of a step for one sample."""
        if step.kind == "vjp":
            return self.chain.elements[step.split - 1].vjp_terms
        return self.nnz(step.right) if step.kind == "mv" else self.product(step).multiply_adds

    def values_sizes(self, segments: np.ndarray, batch_size: int) -> np.ndarray:
        """(k,) the number of values of each of the segments (k, 2), for `batch_size` samples.

        Raises PlanError for more values than a memory layout can count.
        """
        sizes = []
        for begin, end in segments.tolist():
            each = self.nnz((begin, end)) if begin else self.chain.length(end)
            copies = 1 if self.chain.shared(begin, end) else batch_size
            if each * copies > MOST_VALUES:
                raise PlanError(
                    f"a batch of {batch_size} is too large for a scan with {each} values per sample in one "
                    f"matrix or vector: pass a batch size of at most {MOST_VALUES // each}"
                )
            sizes.append(each * copies)
        return np.array(sizes, np.int64)

    def _key(self, segment: Segment) -> Key:
        """Equal for segments of equal patterns in a row; a whole diagonal has its size."""
        begin, end = (self._before[k] for k in segment)
        return self._numbers[begin:end].tobytes() if begin < end else self.chain.length(segment[0])

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
                self._counted[key] = PatternSizes.of_pattern(self._elements[begin])
            else:
                wanted[begin][end - begin] = key
                claimed.add(key)
        total = sum(map(len, wanted.values()))
        with tqdm(total=total, desc="counting", disable=not (progress and sys.stderr.isatty())) as bar:
            for begin, keys in wanted.items():
                counted = count_products(self._elements[begin:], keys)
                self._counted.update((keys[length], sizes) for length, sizes in counted.items())
                bar.update(len(keys))


class ChainPlan(ChainSizes):
    """A chain, the schedules planned for it by name, and every product by the digests of its factors.

    `products` may contain products of other chains, which share them. Missing products are made. Sizes are
    those of the planned patterns, and `pattern` and `product` return the patterns and products themselves.
    """

    def __init__(
        self, chain: Chain, schedules: Mapping[str, Schedule], products: dict[tuple[str, str], Product]
    ) -> None:
        self.chain, self.schedules, self.products = chain, schedules, products
        self._patterns = {(k, k + 1): element.pattern for k, element in enumerate(chain.elements, 1)}
        for schedule in schedules.values():
            for step in schedule.steps:
                if step.kind == "mm":
                    a, b = self.pattern(step.right), self.pattern(step.left)
                    if (a.digest, b.digest) not in products:
                        products[a.digest, b.digest] = multiply(a, b)
                    self._patterns[step.out] = products[a.digest, b.digest].pattern

    def pattern(self, segment: Segment) -> Pattern:
        """The pattern of M(begin, end), for every segment that a schedule reads or computes."""
        return self._patterns[segment]

    def product(self, step: Step) -> Product:
        """The planned product of an "mm" step: A is the right operand's pattern, B the left one's."""
        return self.products[self.pattern(step.right).digest, self.pattern(step.left).digest]


# ---- counting ----


@dataclass(frozen=True, eq=False)
class PatternSizes:
    """The sizes of a pattern, or of a product that was not made.

    `row_lengths` (rows,) and `column_counts` (columns,) are the entries of each row and column, int64.
    `is_diagonal` is True if the pattern is known to be the complete diagonal.
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
    def of_pattern(cls, pattern: Pattern) -> PatternSizes:
        """The sizes of a pattern that is there."""
        columns = np.bincount(pattern.indices, minlength=pattern.shape[1])
        return cls(pattern.shape, pattern.row_lengths.astype(np.int64), columns, pattern.is_diagonal)


class ProductSizes(NamedTuple):
    """The sizes that a `Product` would have, without making it."""

    kind: str
    multiply_adds: int


def count_products(patterns: Sequence[Pattern], lengths: Collection[int]) -> dict[int, PatternSizes]:
    """The sizes of patterns[length - 1] ⋯ patterns[0] for each of `lengths`, which are above 1.

    Where products repeat (powers of one pattern that has filled in), they are one object.
    """
    factors, columns = patterns[: max(lengths)], patterns[0].shape[1]
    width = 64 * max(1, BLOCK_BYTES // (8 * max(1, *(factor.shape[0] for factor in factors))))
    parts: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {length: [] for length in lengths}
    for first in range(0, columns, width):
        block = _Block(factors[0], min(width, columns - first))
        loops.set_bits(factors[0].indptr, factors[0].indices, first, block.columns, block.bits, block.full)
        for length, factor in enumerate(factors[1:], 2):
            block = block.times(factor)
            if length in parts:
                parts[length].append(block.counts)
    made: dict[tuple[int, ...], PatternSizes] = {}
    sizes = {}
    for length in sorted(parts):
        shape = factors[length - 1].shape[0], columns
        key = tuple(map(id, parts[length]))
        if key not in made or not key:
            rows = sum((rows for rows, _ in parts[length]), np.zeros(shape[0], np.int64))
            each = np.concatenate([np.zeros(0, np.int64), *(columns for _, columns in parts[length])])
            made[key] = PatternSizes(shape, rows, each, False)
        sizes[length] = made[key]
    return sizes


class _Block:
    """Some columns of a product, whose last factor is `factor`, as bit sets."""

    def __init__(self, factor: Pattern, columns: int) -> None:
        self.factor, self.columns = factor, columns
        self.bits = np.empty((factor.shape[0], -(-columns // 64)), np.uint64)
        self.full = np.empty(len(self.bits), np.bool_)
        self._repeats = False

    def times(self, factor: Pattern) -> _Block:
        """The product of one more factor; itself where the product is what it was."""
        if self._repeats and factor == self.factor:
            return self
        result = _Block(factor, self.columns)
        loops.unite_rows(
            factor.indptr, factor.indices, self.bits, self.full, self.columns, result.bits, result.full
        )
        self._repeats = factor == self.factor and np.array_equal(result.bits, self.bits)
        return self if self._repeats else result

    @cached_property
    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """The entries of each row, and of each column."""
        rows, words = self.bits.shape
        lengths = np.empty(rows, np.int64)
        partial = np.zeros((4 * numba.get_num_threads(), 64 * words), np.int64)
        loops.count_entries(self.bits, self.full, self.columns, lengths, partial)
        return lengths, partial.sum(0)[: self.columns]


#: Offsets are multiples of this many values, so that every segment starts on its own 256 bytes in float32.
ALIGNMENT = 64

#: Segments (k, 2) that take space, and the first (k,) and last level (k,) at which each is needed.
Live = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets into one arena of `total_bytes`: `offsets` maps a segment to its offset and size, in values.

    Law: two segments that are live at one level do not overlap. An input a_k is live from before
    level 0, a computed segment from the level of its step; a matrix until the last level that reads it,
    a vector v(k) to the end.
    """

    total_bytes: int
    offsets: dict[Segment, tuple[int, int]]


def _live(schedule: Schedule) -> Live:
    """When each segment is needed. Inputs begin at level -1.

    Inputs whose values no step reads are left out, but for a_0: a_n where no input gradient is asked for, and
    elements that are crossed by VJPs.
    """
    end, n = schedule.depth, schedule.n
    table, makers = schedule.table, schedule.makers
    level, begin = table[:, LEVEL], table[:, [BEGIN, SPLIT]]
    reading = np.broadcast_to(level[:, None], makers.shape)
    is_input = makers < 0
    element_last, step_last = np.full(n + 1, -1), level.copy()
    np.maximum.at(element_last, begin[is_input], reading[is_input])
    np.maximum.at(step_last, makers[~is_input], reading[~is_input])
    step_last[table[:, BEGIN] == 0] = end
    element_last[0] = end
    element_last[list(schedule.vjps)] = -1
    elements = np.flatnonzero(element_last >= 0)
    return (
        np.vstack([np.stack([elements, elements + 1], 1), schedule.out]),
        np.concatenate([np.full(elements.size, -1), level]),
        np.concatenate([element_last[elements], step_last]),
    )


def memory_plan(sizes: ChainSizes, schedule: Schedule, batch_size: int, itemsize: int) -> MemoryPlan:
    """The layout of the values of a scan for `batch_size` samples."""
    return _place_segments(sizes, _live(schedule), batch_size, itemsize)


def rank_memory_plan(
    sizes: ChainSizes, placement: RankSchedule, rank: int, batch_size: int, itemsize: int
) -> MemoryPlan:
    """The layout of the values of one rank: the inputs it reads, and what it computes, sends and receives.

    A message may be under way at any time, so a segment that is received is live from the start and, like one
    that is sent, to the end.
    """
    schedule, sent = placement.schedule, placement.sent
    segments, first, last = _live(schedule)
    name = np.array([schedule.n + 2, 1])
    steps = schedule.table[placement.steps_of(rank)]
    used = steps[:, [[BEGIN, SPLIT], [SPLIT, END], [BEGIN, END]]].reshape(-1, 2) @ name
    sends, receives = (sent[sent[:, column] == rank, 1:3] @ name for column in (3, 4))
    start = name[1:] * (placement.owners[0] == rank)  # of a_0, the segment (0, 1)
    codes = segments @ name
    received = np.isin(codes, receives)
    first = np.where(received, -1, first)
    last = np.where(received | np.isin(codes, sends), schedule.depth, last)
    held = np.isin(codes, np.concatenate([used, sends, receives, start]))
    return _place_segments(sizes, (segments[held], first[held], last[held]), batch_size, itemsize)


def _place_segments(sizes: ChainSizes, live: Live, batch_size: int, itemsize: int) -> MemoryPlan:
    """Best fit without joining holes: most segments of a scan have few different sizes."""
    segments, first, last = live
    values = sizes.values_sizes(segments, batch_size)
    order = np.lexsort((segments[:, 1], segments[:, 0], -values, first))
    columns = (array[order].tolist() for array in (segments, first, last, values))
    offsets: dict[Segment, tuple[int, int]] = {}
    holes: list[tuple[int, int]] = []  # (size, offset), sorted
    ending: list[tuple[int, int, int]] = []  # (last level, size, offset), a heap
    top = 0
    for (begin, end), start, until, count in zip(*columns, strict=True):
        while ending and ending[0][0] < start:
            insort(holes, heappop(ending)[1:])
        size = -(-count // ALIGNMENT) * ALIGNMENT
        at = bisect_left(holes, (size, 0))
        if at < len(holes) and size:
            space, offset = holes.pop(at)
            if space > size:
                insort(holes, (space - size, offset + size))
        else:
            offset, top = top if size else 0, top + size
        offsets[begin, end] = offset, count
        if size:
            heappush(ending, (until, size, offset))
    return MemoryPlan(top * itemsize, offsets)


@dataclass(frozen=True)
class Budget:
    """The resources of scans.

    Attributes
    ----------
    batch_size, itemsize : int
        The samples that the buffers hold, and the bytes per value.
    workers : int
        The number of workers, or of ranks.
    memory : int or None
        Bytes for the values of one schedule. None for no limit.
    owners : tuple of int or None
        The rank of each element a_1, …, a_n. Each step runs on the rank of its last element, and memory is
        that of the rank that needs most. None if workers share all steps.
    """

    batch_size: int
    itemsize: int
    workers: int = 1
    memory: int | None = None
    owners: tuple[int, ...] | None = None

    def bytes(self, sizes: ChainSizes, schedule: Schedule) -> int:
        """Bytes of the values of `schedule`, with the gradient with respect to the chain's input."""
        schedule, size = with_input_gradient(schedule), (self.batch_size, self.itemsize)
        if self.owners is None:
            return memory_plan(sizes, schedule, *size).total_bytes
        placement = place(schedule, self.owners, self.workers)
        return max(
            rank_memory_plan(sizes, placement, rank, *size).total_bytes for rank in range(self.workers)
        )

    def fits(self, needed: int) -> bool:
        """Whether there is as much memory."""
        return self.memory is None or needed <= self.memory
