"""What a chain's segments and steps take, whether they are planned or merely counted."""

from __future__ import annotations

import abc

import numpy as np

from bppsa_cupy.csr import index_dtype
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.schedule import KIND, LEVEL, Schedule, Segment, Step

#: Values of one segment at most, a petabyte: bytes of all segments are added up in 64 bits.
MOST_VALUES = 2**48


class ChainSizes(abc.ABC):
    """Sizes of M(begin, end), 1 <= begin < end <= n + 1, and of the products that make them."""

    chain: Chain

    @abc.abstractmethod
    def nnz(self, segment: Segment) -> int:
        """Entries of M(begin, end)."""

    @abc.abstractmethod
    def pattern_numbers(self, segments: np.ndarray) -> np.ndarray:
        """(k,) a number from 0 on for each of `segments` (k, 2), equal only where patterns are."""

    @abc.abstractmethod
    def multiply_adds(self, step: Step) -> int:
        """The terms of a step for one sample."""

    @abc.abstractmethod
    def kind(self, step: Step) -> str:
        """The kind of an "mm" step's product."""

    @abc.abstractmethod
    def map_bytes(self, step: Step) -> int:
        """Bytes of the maps of an "mm" step's product; 0 for "mv"."""

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
