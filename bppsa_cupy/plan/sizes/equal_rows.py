"""Patterns without repetition: equal rows, and equal columns, count once.

A convolution's rows are the same for all input channels, and a pooling's for a whole window, so that
products can be counted on a fraction of the rows: of equal rows of A, A·B has equal rows, and where rows
of B are equal, an entry of A in one of them is as good as entries in all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan.sizes import loops


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
        loops.hash_rows(indptr, indices, _read_only(group), hashes)
        return self._one(Classes.of(hashes))

    def _one(self, classes: Classes) -> Classes:
        """The one object for all equal classes."""
        return self._classes.setdefault(classes.group.tobytes(), classes)


def _read_only(array: np.ndarray) -> np.ndarray:
    """The compiler has a type for arrays that are read alone, so each loop is compiled for one."""
    array.flags.writeable = False
    return array
