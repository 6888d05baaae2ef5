"""Patterns without repetition: equal rows, and equal columns, are one.

A convolution's rows are the same for all input channels, and a pooling's for a whole window, so that
products can be counted on a fraction of the rows: of equal rows of A, A·B has equal rows, and where rows
of B are equal, an entry of A in one of them is as good as entries in all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan.sizes import loops


@dataclass(frozen=True, eq=False)
class RowClasses:
    """Which of `size` rows, or columns, are known to be equal.

    group  (size,) int32, the group of each, from 0 to groups - 1
    kept   (groups,) one of each group, in rising order where no two are equal
    sizes  (groups,) int64, how many there are in each
    """

    group: np.ndarray
    kept: np.ndarray
    sizes: np.ndarray

    @property
    def groups(self) -> int:
        return self.kept.size

    @property
    def is_identity(self) -> bool:
        """Whether no two are known to be equal."""
        return self.kept.size == self.group.size

    @classmethod
    def of(cls, *keys: np.ndarray) -> RowClasses:
        """Equal where all of `keys`, each (size,), are; groups in the order of their first members."""
        size = keys[0].size
        order = np.lexsort(keys)
        new = np.ones(size, bool)
        if size:
            new[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
        kept = np.minimum.reduceat(order, np.flatnonzero(new)) if size else order
        rank = np.empty(kept.size, np.int64)
        rank[np.argsort(kept)] = np.arange(kept.size)
        group = np.empty(size, np.int32)
        group[order] = rank[np.cumsum(new) - 1]
        return cls(_read_only(group), _read_only(np.sort(kept)), np.bincount(group, minlength=kept.size))


@dataclass(frozen=True, eq=False)
class GroupedPattern:
    """A pattern with one row for each group of its rows and one column for each group of its columns.

    indptr   (row groups + 1,), indices, distinct inside a row and in any order
    rows     the groups of the pattern's rows
    """

    indptr: np.ndarray
    indices: np.ndarray
    rows: RowClasses


class EqualRows:
    """Patterns with their equal rows and columns grouped, each made once.

    Equality is told by 128-bit hashes of sets of columns: two of n rows that differ are taken for equal
    with a probability below n²·2⁻¹²⁸.
    """

    def __init__(self) -> None:
        self._partitions: dict[bytes, RowClasses] = {}
        self._made: dict[tuple[str, int], GroupedPattern] = {}
        self._columns: dict[str, RowClasses] = {}

    def of(self, pattern: Pattern, columns: RowClasses) -> GroupedPattern:
        """`pattern` with its columns grouped, and those of its rows that are equal then."""
        key = pattern.digest, id(columns)
        if key not in self._made:
            self._made[key] = self._make(pattern, columns)
        return self._made[key]

    def columns(self, pattern: Pattern) -> RowClasses:
        """The groups of equal columns of a pattern."""
        if pattern.digest not in self._columns:
            each = self._same(RowClasses.of(np.arange(pattern.shape[1])))
            rows = self.of(pattern, each)
            hashes = np.empty((pattern.shape[1], 2), np.uint64)
            loops.hash_columns(rows.indptr, rows.indices, hashes)
            self._columns[pattern.digest] = self._same(RowClasses.of(hashes[:, 0], hashes[:, 1]))
        return self._columns[pattern.digest]

    def _make(self, pattern: Pattern, columns: RowClasses) -> GroupedPattern:
        size = pattern.shape[0]
        grouped = pattern.indptr, pattern.indices, columns.group, columns.groups
        lengths, hashes = np.empty(size, np.int64), np.empty((size, 2), np.uint64)
        # Some chunks a thread, so that uneven rows even out.
        loops.hash_rows(*grouped, 4 * numba.get_num_threads(), lengths, hashes)
        rows = self._same(RowClasses.of(hashes[:, 0], hashes[:, 1], lengths))
        if rows.is_identity and columns.is_identity:
            return GroupedPattern(pattern.indptr, pattern.indices, rows)
        indptr = np.zeros(rows.groups + 1, pattern.indptr.dtype)
        np.cumsum(lengths[rows.kept], out=indptr[1:])
        indices = np.empty(int(indptr[-1]), pattern.indices.dtype)
        loops.group_rows(*grouped, rows.kept, indptr, indices)
        return GroupedPattern(_read_only(indptr), _read_only(indices), rows)

    def _same(self, partition: RowClasses) -> RowClasses:
        """The one object for all equal partitions."""
        return self._partitions.setdefault(partition.group.tobytes(), partition)


def _read_only(array: np.ndarray) -> np.ndarray:
    """The compiler has a type for arrays that are read alone, so each loop is compiled for one."""
    array.flags.writeable = False
    return array
