"""CSR patterns: where the entries of a sparse matrix may be, without their values."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse

from bppsa_cupy.arguments import as_integer, as_integers, as_plain_array
from bppsa_cupy.errors import ArgumentError, ShapeError

#: The largest number of rows or entries: an array of so many positions, and one more, can have an address.
MOST = 2**59


@dataclass(frozen=True, eq=False)
class Pattern:
    """The pattern of a CSR matrix: its shape and the positions of its stored entries.

    Parameters
    ----------
    shape : tuple of int
        (rows, columns).
    indptr : array of int, (rows + 1,)
        Row i contains the entries indptr[i] to indptr[i + 1] - 1.
    indices : array of int, (nnz,)
        Columns, strictly increasing inside a row.

    Raises
    ------
    ShapeError
        If the arrays are not a valid CSR pattern.

    Notes
    -----
    The arrays are stored read-only, as int32, or as int64 for large sizes. Two patterns are equal if their
    `digest`s are.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> pattern = bp.Pattern((2, 3), [0, 1, 3], [2, 0, 1])
    >>> pattern, pattern.to_scipy().toarray().tolist()
    (Pattern 2 × 3, 3 entries, [[0.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    >>> pattern == bp.Pattern.from_scipy(pattern.to_scipy())
    True
    """

    shape: tuple[int, int]
    indptr: np.ndarray
    indices: np.ndarray

    def __repr__(self) -> str:
        return f"Pattern {self.shape[0]:,} × {self.shape[1]:,}, {self.nnz:,} entries"

    def __post_init__(self) -> None:
        if not isinstance(self.shape, (tuple, list)) or len(self.shape) != 2:
            raise ShapeError(f"a pattern got shape={self.shape!r}: pass (rows, columns)")
        rows, columns = (
            as_integer("a pattern", name, size, 0)
            for name, size in zip(("rows", "columns"), self.shape, strict=True)
        )
        indptr, indices = (
            as_integers("a pattern", name, getattr(self, name)) for name in ("indptr", "indices")
        )
        if indptr.shape != (rows + 1,) or indices.ndim != 1:
            raise ShapeError(
                f"a pattern of {rows} rows got indptr of shape {indptr.shape} and indices of "
                f"shape {indices.shape}: pass ({rows + 1},) and (nnz,)"
            )
        if indptr[0] != 0 or indptr[-1] != indices.size:
            raise ShapeError(
                f"indptr runs from {indptr[0]} to {indptr[-1]}: pass an indptr from 0 to the number of "
                f"indices, {indices.size}"
            )
        if np.any(indptr[1:] < indptr[:-1]):
            raise ShapeError("indptr decreases: pass an indptr whose values never decrease")
        if indices.size:
            if indices.min() < 0 or indices.max() >= columns:
                raise ShapeError(
                    f"indices run from {indices.min()} to {indices.max()}: pass 0 to {columns - 1} "
                    f"for a matrix of {columns} columns"
                )
            rising = indices[1:] > indices[:-1]
            inner = indptr[1:-1].astype(np.int64)
            rising[inner[(inner > 0) & (inner < indices.size)] - 1] = True
            if not rising.all():
                raise ShapeError(
                    "indices do not increase strictly in every row: sort the indices of each row, and sum "
                    "duplicates"
                )
        dtype = index_dtype(max(indices.size, rows, columns))
        object.__setattr__(self, "shape", (rows, columns))
        for name, array in (("indptr", indptr), ("indices", indices)):
            stored = np.ascontiguousarray(array, dtype=dtype)
            stored.flags.writeable = False
            object.__setattr__(self, name, stored)

    @property
    def nnz(self) -> int:
        """The number of stored entries."""
        return int(self.indices.size)

    @property
    def sparsity(self) -> float:
        """The share of elements that are not stored (Wang et al. 2020, table 1). 0 for an empty matrix."""
        size = self.shape[0] * self.shape[1]
        return 1.0 - self.nnz / size if size else 0.0

    @cached_property
    def digest(self) -> str:
        """SHA-256 of shape, indptr and indices."""
        state = hashlib.sha256(f"csr {self.shape[0]} {self.shape[1]} ".encode())
        for array in (self.indptr, self.indices):
            state.update(array.astype(array.dtype.newbyteorder("<"), copy=False).data)
        return state.hexdigest()

    @cached_property
    def row_lengths(self) -> np.ndarray:
        """The number of entries of each row, (rows,)."""
        return np.diff(self.indptr)

    @cached_property
    def is_diagonal(self) -> bool:
        """Whether the matrix is square and its stored entries are exactly the diagonal."""
        rows, columns = self.shape
        return (
            rows == columns == self.nnz
            and bool(np.array_equal(self.indices, np.arange(rows)))
            and bool(np.array_equal(self.indptr, np.arange(rows + 1)))
        )

    @cached_property
    def is_selection(self) -> bool:
        """Whether every row has at most one entry."""
        return self.nnz == 0 or int(self.row_lengths.max()) <= 1

    @property
    def is_dense(self) -> bool:
        """Whether every element of the matrix is stored."""
        return self.nnz == self.shape[0] * self.shape[1]

    def rows(self) -> np.ndarray:
        """The row of each entry, (nnz,)."""
        return np.repeat(np.arange(self.shape[0], dtype=self.indptr.dtype), self.row_lengths)

    def to_scipy(self, data: np.ndarray | None = None) -> scipy.sparse.csr_array:
        """Return a SciPy CSR array with this pattern.

        Parameters
        ----------
        data : array, (nnz,), optional
            The values. Ones by default.

        Returns
        -------
        scipy.sparse.csr_array
        """
        values = np.ones(self.nnz) if data is None else as_plain_array("a pattern", "data", data)
        if values.shape != (self.nnz,):
            raise ShapeError(f"a pattern got data of shape {values.shape}: pass ({self.nnz},)")
        return scipy.sparse.csr_array((values, self.indices.copy(), self.indptr.copy()), shape=self.shape)

    @classmethod
    def from_scipy(cls, matrix: scipy.sparse.sparray) -> Pattern:
        """Return the pattern of the stored entries of a SciPy sparse matrix, explicit zeros included."""
        if not scipy.sparse.issparse(matrix):
            raise ArgumentError(
                f"from_scipy got a matrix of {type(matrix).__name__}: pass a SciPy sparse matrix"
            )
        csr = scipy.sparse.csr_array(matrix, copy=True)
        csr.sum_duplicates()
        return cls(csr.shape, csr.indptr, csr.indices)

    @classmethod
    def diagonal(cls, size: int) -> Pattern:
        """Return the pattern of a diagonal matrix of `size` rows."""
        size = as_integer("a pattern", "rows", size, 0, MOST)
        return cls((size, size), np.arange(size + 1), np.arange(size))

    @classmethod
    def dense(cls, rows: int, columns: int) -> Pattern:
        """Return the pattern of shape (rows, columns) that stores every element."""
        rows, columns = (
            as_integer("a pattern", name, size, 0) for name, size in (("rows", rows), ("columns", columns))
        )
        if max(rows, rows * columns) > MOST:
            raise ShapeError(
                f"a dense pattern got {rows} rows and {columns} columns: pass at most {MOST} entries"
            )
        return cls((rows, columns), np.arange(rows + 1) * columns, np.tile(np.arange(columns), rows))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def index_dtype(largest: int) -> type[np.int32] | type[np.int64]:
    """The integer type that holds positions up to `largest`: int32 below 2**31, else int64."""
    return np.int32 if largest < 2**31 else np.int64
