"""What a chain's segments and steps take, whether they are planned or merely counted."""

from __future__ import annotations

import abc
from collections.abc import Hashable
from itertools import accumulate

import numpy as np

from bppsa_cupy.csr import index_dtype
from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.schedule import Schedule, Segment, Step


class ChainSizes(abc.ABC):
    """Sizes of M(begin, end), 1 <= begin < end <= n + 1, and of the products that make them."""

    chain: Chain

    @abc.abstractmethod
    def nnz(self, segment: Segment) -> int:
        """Entries of M(begin, end)."""

    @abc.abstractmethod
    def pattern_key(self, segment: Segment) -> Hashable:
        """Equal only for segments of equal patterns."""

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

    def pattern_bytes(self, segment: Segment) -> int:
        """Bytes of the pattern of M(begin, end)."""
        nnz, rows, columns = self.nnz(segment), self.chain.length(segment[1]), self.chain.length(segment[0])
        return (nnz + rows + 1) * np.dtype(index_dtype(max(nnz, rows, columns))).itemsize

    def index_bytes(self, schedule: Schedule) -> list[int]:
        """Bytes of all integers the schedule needs, patterns and maps, added up by level, (depth,).

        Equal patterns and equal products are counted once.
        """
        by_level = [0] * schedule.depth
        seen: set[Hashable] = set()
        for step in schedule.steps:
            for segment in (step.left, step.right, step.out):
                if segment[0] > 0 and (key := self.pattern_key(segment)) not in seen:
                    seen.add(key)
                    by_level[step.level] += self.pattern_bytes(segment)
            if step.kind == "mm":
                factors = self.pattern_key(step.right), self.pattern_key(step.left)
                if factors not in seen:
                    seen.add(factors)
                    by_level[step.level] += self.map_bytes(step)
        return list(accumulate(by_level))
