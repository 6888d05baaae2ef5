"""Patterns made of dense blocks: their sizes, the pattern of the blocks, and where elements lie.

Values of blocks lie block after block in CSR order, each block row-major, as in SciPy's BSR.
"""

from __future__ import annotations

import numpy as np

from bppsa_cupy.csr import Pattern

#: Rows or columns of a block at most: kernels are unrolled for the sizes of blocks.
MOST = 16


def block_sizes(pattern: Pattern) -> tuple[int, int]:
    """The largest rows and columns whose aligned blocks are each full or empty; (1, 1) without entries."""
    indices, lengths = pattern.indices, pattern.row_lengths
    if not pattern.nnz:
        return 1, 1
    rows = pattern.rows()
    # A run of neighbouring columns begins where the column or the row does not continue the one before.
    breaks = np.flatnonzero((np.diff(indices) != 1) | (np.diff(rows) != 0)) + 1
    ends = np.append(indices[breaks - 1], indices[-1]) + 1
    columns = int(np.gcd.reduce(np.concatenate([indices[:1], indices[breaks], ends, [pattern.shape[1]]])))
    # Rows differ from the next one in length, or in a column.
    differs = np.append(lengths[1:] != lengths[:-1], True)
    compared = np.flatnonzero(~differs[rows])
    unequal = compared[indices[compared] != indices[compared + lengths[rows[compared]]]]
    differs[rows[unequal]] = True
    return int(np.gcd.reduce(np.flatnonzero(differs) + 1)), columns


def divisor(size: int) -> int:
    """The largest divisor of a size that a block may have."""
    return next(d for d in range(MOST, 0, -1) if size % d == 0)


def coarsen(pattern: Pattern, rows: int, columns: int) -> Pattern:
    """The pattern of the blocks of a pattern that is made of blocks of this size."""
    if rows == columns == 1:
        return pattern
    lengths = pattern.row_lengths[::rows]
    firsts = np.repeat(np.arange(pattern.shape[0]) % rows == 0, pattern.row_lengths)
    indptr = np.concatenate([[0], np.cumsum(lengths // columns)])
    shape = pattern.shape[0] // rows, pattern.shape[1] // columns
    return Pattern(shape, indptr, pattern.indices[firsts][::columns] // columns)


def cover(pattern: Pattern, rows: int, columns: int) -> Pattern:
    """The pattern of all blocks of this size with an entry."""
    if rows == columns == 1:
        return pattern
    blocks = pattern.to_scipy().tobsr((rows, columns))
    blocks.sort_indices()
    return Pattern((pattern.shape[0] // rows, pattern.shape[1] // columns), blocks.indptr, blocks.indices)


def csr_places(blocks: Pattern, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """(blocks,) int64 each: where a block's first element lies in CSR, and from there to its next row."""
    first = np.repeat(blocks.indptr[:-1].astype(np.int64), blocks.row_lengths)
    stride = np.repeat(blocks.row_lengths.astype(np.int64), blocks.row_lengths) * columns
    return first * (rows * columns) + (np.arange(blocks.nnz) - first) * columns, stride


def csr_order(blocks: Pattern, rows: int, columns: int) -> np.ndarray:
    """(elements,) the position in CSR of each element of blocks."""
    start, stride = (array[:, None, None] for array in csr_places(blocks, rows, columns))
    return (start + stride * np.arange(rows)[:, None] + np.arange(columns)).reshape(-1)


def refine(blocks: Pattern, rows: int, columns: int) -> Pattern:
    """The pattern of all elements of blocks: the inverse of `coarsen`."""
    if rows == columns == 1:
        return blocks
    indices = np.empty(blocks.nnz * rows * columns, np.int64)
    elements = blocks.indices[:, None, None].astype(np.int64) * columns + np.arange(columns)
    indices[csr_order(blocks, rows, columns)] = np.broadcast_to(elements, (blocks.nnz, rows, columns)).ravel()
    indptr = np.concatenate([[0], np.cumsum(np.repeat(blocks.row_lengths * columns, rows))])
    return Pattern((blocks.shape[0] * rows, blocks.shape[1] * columns), indptr, indices)


def transpose(pattern: Pattern) -> tuple[Pattern, np.ndarray]:
    """The transposed pattern, and for each of its entries the position of the entry in `pattern`."""
    order = np.argsort(pattern.indices, kind="stable")
    counts = np.bincount(pattern.indices, minlength=pattern.shape[1])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return Pattern(pattern.shape[::-1], indptr, pattern.rows()[order]), order


def triangle_of(pattern: Pattern, triangle: str) -> Pattern:
    """The entries of the "upper" or "lower" triangle and of the diagonal."""
    rows = pattern.rows()
    inside = pattern.indices >= rows if triangle == "upper" else pattern.indices <= rows
    counts = np.bincount(rows[inside], minlength=pattern.shape[0])
    return Pattern(pattern.shape, np.concatenate([[0], np.cumsum(counts)]), pattern.indices[inside])


def positions(pattern: Pattern, part: Pattern) -> np.ndarray:
    """(nnz of part,) the position in a pattern of each entry of a part of it."""
    columns = pattern.shape[1]
    keys, wanted = (p.rows().astype(np.int64) * columns + p.indices for p in (pattern, part))
    return np.searchsorted(keys, wanted)


def inverse(order: np.ndarray) -> np.ndarray:
    """The inverse of a permutation."""
    result = np.empty_like(order)
    result[order] = np.arange(order.size)
    return result
