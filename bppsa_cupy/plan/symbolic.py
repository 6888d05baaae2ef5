"""The symbolic product: the pattern of C = A·B, its kind, and the maps the numeric product needs.

This phase does not depend on values, dtype or batch, and uses no device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numba
import numpy as np

from bppsa_cupy.csr import Pattern, index_dtype
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.plan import loops

#: The kinds of product, in the order in which they are tried, and the maps each needs beyond the
#: three patterns.
MAPS: dict[str, tuple[str, ...]] = {
    "scale_rows": (),
    "scale_columns": (),
    "select_rows": (),
    "dense": (),
    "full_rows": (),
    "terms": ("term_ptr", "a_position", "b_position"),
    "row_wise": ("row_terms", "position"),
}

#: A term list is made where the rows of B that A meets have at most this many entries on average.
TERMS_PER_ENTRY = 4
#: A term list holds at most this many terms (two positions each).
MAXIMAL_TERMS = 2**26


@dataclass(frozen=True, eq=False)
class Product:
    """One planned product C = A·B.

    a, b           patterns of the factors, (rows, inner) and (inner, columns)
    pattern        of C: every entry that has a term
    multiply_adds  number of terms over all entries
    maps           index arrays of one dtype, int32 or int64 (`index_dtype` of the largest position)
    kind           how C is computed
        "scale_rows"     A is the whole diagonal: C has B's pattern, row i times A's value i
        "scale_columns"  B is the whole diagonal: C has A's pattern, column j times B's value j
        "select_rows"    a row of A has at most one entry: row i of C is that row of B times the entry
        "dense"          A and B are dense: so is C, of shape (rows, columns)
        "full_rows"      a row of B is empty or full: so is one of C; row i is the sum over A's row i
                         of B's full rows times the entries
        "terms"          entry k of C is the sum over t in [term_ptr[k], term_ptr[k + 1]) of
                         A[a_position[t]]·B[b_position[t]]; term_ptr (nnz + 1,), positions (multiply_adds,)
        "row_wise"       the multiply-adds of row i, in the order p over A's row, q over B's row, are
                         numbers row_terms[i] to row_terms[i + 1]; number m adds A[p]·B[q] to entry
                         C.indptr[i] + position[m]; row_terms (rows + 1,), position (multiply_adds,)
    """

    a: Pattern
    b: Pattern
    pattern: Pattern
    kind: str
    multiply_adds: int
    maps: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """The digests of A and B: equal keys mean equal products."""
        return self.a.digest, self.b.digest

    @property
    def map_bytes(self) -> int:
        """Bytes of all maps."""
        return sum(array.nbytes for array in self.maps.values())


class Operand(Protocol):
    """What the choice of a kind looks at: a Pattern, or the counts of one that was never made."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def nnz(self) -> int: ...
    @property
    def row_lengths(self) -> np.ndarray: ...
    @property
    def is_diagonal(self) -> bool: ...
    @property
    def is_selection(self) -> bool: ...
    @property
    def is_dense(self) -> bool: ...


def choose_kind(a: Operand, b: Operand, multiply_adds: int) -> str:
    """The kind of A·B, by structure first.

    Of the two general kinds, the term list reads each output entry's terms at once and wins where
    B's rows are short (B nearly a selection), so that a stretch of the output is a stretch of A. With
    longer rows its reads of B are strided, and the row-wise kind, which reads B along its rows, wins.
    """
    if a.is_diagonal:
        return "scale_rows"
    if b.is_diagonal:
        return "scale_columns"
    if a.is_selection:
        return "select_rows"
    if a.is_dense and b.is_dense:
        return "dense"
    if has_full_rows(b):
        return "full_rows"
    if multiply_adds <= min(TERMS_PER_ENTRY * a.nnz, MAXIMAL_TERMS):
        return "terms"
    return "row_wise"


def has_full_rows(b: Operand) -> bool:
    """Whether every row is empty or full."""
    return b.nnz == b.shape[1] * int(np.count_nonzero(b.row_lengths))


def map_dtype(a: Operand, b: Operand, multiply_adds: int) -> type[np.int32] | type[np.int64]:
    """The dtype of the maps of A·B; nnz of a product is at most its multiply-adds."""
    return index_dtype(max(multiply_adds, a.nnz, b.nnz, *b.shape, a.shape[0]))


def map_bytes(a: Operand, b: Operand, kind: str, nnz: int, multiply_adds: int) -> int:
    """Bytes of the maps of A·B, which has `nnz` entries, without making it."""
    itemsize = np.dtype(map_dtype(a, b, multiply_adds)).itemsize
    if kind == "terms":
        return (nnz + 1 + 2 * multiply_adds) * itemsize
    if kind == "row_wise":
        return (a.shape[0] + 1 + multiply_adds) * itemsize
    return 0


def multiply(a: Pattern, b: Pattern) -> Product:
    """The planned product of A (rows, inner) and B (inner, columns).

    Time and memory grow with the multiply-adds for the general kinds, with nnz for the others.
    Laws: the pattern is that of A·B with all values one; (A·B)·C and A·(B·C) have one pattern.
    Raises ShapeError where the inner sizes differ.
    """
    check_shapes(a, b)
    terms = entry_terms(a, b)
    multiply_adds = int(terms.sum())
    kind = choose_kind(a, b, multiply_adds)
    if kind in ("terms", "row_wise"):
        return _general(a, b, kind, prefix_sums(row_sums(a, terms)))
    if kind == "scale_rows":
        pattern = b
    elif kind == "scale_columns":
        pattern = a
    elif kind == "select_rows":
        pattern = _selected_rows(a, b, terms)
    else:
        met = row_sums(a, terms) > 0
        pattern = _full_rows(met, b.shape[1])
    return Product(a, b, pattern, kind, multiply_adds)


def check_shapes(a: Operand, b: Operand) -> None:
    """Raise ShapeError where A·B is not defined."""
    if a.shape[1] != b.shape[0]:
        raise ShapeError(f"A {a.shape} times B {b.shape}: A's columns must be B's rows")


def entry_terms(a: Pattern, b: Pattern) -> np.ndarray:
    """(nnz of A,) int64: the multiply-adds that each entry of A takes part in."""
    return b.row_lengths.astype(np.int64)[a.indices]


def row_sums(a: Pattern, of_entries: np.ndarray) -> np.ndarray:
    """(rows,) sums over the entries of each row of A."""
    return np.diff(prefix_sums(of_entries)[a.indptr])


def prefix_sums(counts: np.ndarray) -> np.ndarray:
    """(n + 1,) int64: 0 and the running sums."""
    sums = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def _selected_rows(a: Pattern, b: Pattern, terms: np.ndarray) -> Pattern:
    lengths = np.zeros(a.shape[0], np.int64)
    lengths[a.row_lengths > 0] = terms
    indptr = prefix_sums(lengths)
    source = np.repeat(b.indptr[:-1][a.indices] - prefix_sums(terms)[:-1], terms)
    return Pattern((a.shape[0], b.shape[1]), indptr, b.indices[source + np.arange(source.size)])


def _full_rows(met: np.ndarray, columns: int) -> Pattern:
    indptr = prefix_sums(met * columns)
    return Pattern((met.size, columns), indptr, np.tile(np.arange(columns), np.count_nonzero(met)))


def _general(a: Pattern, b: Pattern, kind: str, row_terms: np.ndarray) -> Product:
    rows, columns = a.shape[0], b.shape[1]
    multiply_adds = int(row_terms[-1])
    dtype = map_dtype(a, b, multiply_adds)
    operands = [_input(array, dtype) for array in (a.indptr, a.indices, b.indptr, b.indices)]
    # Some chunks a thread, so that uneven rows even out; each takes a workspace of a few rows of C.
    shape = (columns, 4 * numba.get_num_threads())
    lengths = np.empty(rows, np.int64)
    loops.row_lengths(*operands, *shape, lengths)
    indptr = _input(prefix_sums(lengths), dtype)
    indices = np.empty(int(indptr[-1]), dtype)
    loops.row_columns(*operands, *shape, indptr, indices)
    starts = _input(row_terms, dtype)
    known = (*operands, *shape, indptr, _input(indices, dtype), starts)
    if kind == "row_wise":
        position = np.empty(multiply_adds, dtype)
        loops.row_wise_map(*known, position)
        maps = {"row_terms": starts, "position": position}
    else:
        term_ptr = np.empty(indices.size + 1, dtype)
        term_ptr[-1] = multiply_adds
        a_position, b_position = np.empty(multiply_adds, dtype), np.empty(multiply_adds, dtype)
        loops.term_map(*known, term_ptr, a_position, b_position)
        maps = {"term_ptr": term_ptr, "a_position": a_position, "b_position": b_position}
    for array in maps.values():
        array.flags.writeable = False
    return Product(a, b, Pattern((rows, columns), indptr, indices), kind, multiply_adds, maps)


def _input(array: np.ndarray, dtype: Any) -> np.ndarray:
    """A read-only view (the compiler has a type for these, so each loop is compiled for one), or copy."""
    view = array.astype(dtype, copy=False).view()
    view.flags.writeable = False
    return view
