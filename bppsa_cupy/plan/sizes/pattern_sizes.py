"""The sizes of a pattern, of one that is there or of a product that never was made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bppsa_cupy.csr import Pattern


@dataclass(frozen=True, eq=False)
class PatternSizes:
    """The sizes of a pattern.

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

    @classmethod
    def diagonal(cls, size: int) -> PatternSizes:
        """The sizes of a whole diagonal."""
        ones = np.ones(size, np.int64)
        return cls((size, size), ones, ones, True)


def multiply_adds(a: PatternSizes, b: PatternSizes) -> int:
    """The number of terms of A·B: every entry of A in column k meets every entry of B in row k."""
    return int(np.dot(a.column_counts, b.row_lengths))
