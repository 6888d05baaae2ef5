"""The symbolic product: the pattern of C = A·B, its kind, and the maps the numeric product needs.

This phase does not depend on values, dtype or batch, and uses no device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np

from bppsa_cupy.csr import Pattern, index_dtype
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.plan import loops
from bppsa_cupy.system.memory import check_host_memory

#: The kinds of product, in the order in which they are tried, and the maps each needs beyond the
#: three patterns. `multiply_masked` makes the last one.
MAPS: dict[str, tuple[str, ...]] = {
    "scale_rows": (),
    "scale_columns": (),
    "select_rows": (),
    "dense": (),
    "full_rows": (),
    "terms": ("term_ptr", "a_position", "b_position"),
    "row_wise": (),
    "masked": ("term_ptr", "a_position", "b_position"),
}

#: A term list is made where the rows of B that A meets have at most this many entries on average.
TERMS_PER_ENTRY = 1
#: A term list holds at most this many terms (two positions each).
MAXIMAL_TERMS = 2**26
#: Chunks of rows a thread, so that uneven rows even out; each has a workspace of a few rows of C.
CHUNKS = 4
#: Bytes up to which B's rows are kept as bit sets while a pattern is made.
BITS_BYTES = 2**28


@dataclass(frozen=True, eq=False)
class Product:
    """One planned product C = A·B.

    Attributes
    ----------
    a, b : Pattern
        The patterns of the factors, (rows, inner) and (inner, columns).
    pattern : Pattern
        The pattern of C: every entry that has a term.
    multiply_adds : int
        The number of terms of all entries.
    maps : dict of str to array
        Index arrays of one dtype, int32 or int64 (`index_dtype` of the largest position).
    kind : str
        How C is computed.

        - "scale_rows": A is a diagonal. Row i of C is row i of B times value i of A.
        - "scale_columns": B is a diagonal. Column j of C is column j of A times value j of B.
        - "select_rows": each row of A has at most one entry. Row i of C is that row of B times the entry.
        - "dense": A, B and C are dense.
        - "full_rows": each row of B is empty or full. Row i of C is the sum of the full rows of B times the
          entries of row i of A.
        - "terms": entry k of C is the sum over t in [term_ptr[k], term_ptr[k + 1]) of
          A[a_position[t]]·B[b_position[t]], with term_ptr (nnz + 1,) and positions (multiply_adds,).
        - "row_wise": row i of C is the sum of rows of B times the entries of row i of A (Gustavson), for all
          columns side by side. It needs only the three patterns.
        - "masked": as "terms", for the entries of any pattern, which may have no term.
    """

    a: Pattern
    b: Pattern
    pattern: Pattern
    kind: str
    multiply_adds: int
    maps: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def map_bytes(self) -> int:
        """Bytes of all maps."""
        return sum(array.nbytes for array in self.maps.values())


#: What the choice of a kind looks at: a Pattern, or the PatternSizes of a product that was not made.
Operand = Any


def choose_kind(a: Operand, b: Operand, multiply_adds: int) -> str:
    """The kind of A·B, by structure first.

    Of the two general kinds, row-wise reads B and adds to sums along B's rows, whatever the fill-in, and
    needs no map; it wins as soon as those rows have more than one entry. The term list, which writes
    an entry of C at once, wins where B is nearly a selection.
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


def multiply(a: Pattern, b: Pattern) -> Product:
    """The planned product of A (rows, inner) and B (inner, columns).

    Time grows with the entries of A, B and C and with the multiply-adds; memory with the entries, and for a
    term list with the multiply-adds.
    Laws: the pattern is that of A·B with all values one; (A·B)·C and A·(B·C) have one pattern.
    Raises ShapeError where the inner sizes differ.
    """
    check_shapes(a, b)
    terms = entry_terms(a, b)
    multiply_adds = int(terms.sum())
    kind = choose_kind(a, b, multiply_adds)
    if kind in ("terms", "row_wise"):
        pattern = _united_rows(a, b, multiply_adds)
    elif kind == "scale_rows":
        pattern = b
    elif kind == "scale_columns":
        pattern = a
    elif kind == "select_rows":
        pattern = selected_rows(a, b, terms)
    else:
        met, columns = row_sums(a, terms) > 0, b.shape[1]
        rows = int(np.count_nonzero(met))
        indices = _new_indices(rows * columns, a.shape[0], columns)
        indices.reshape(rows, columns)[...] = np.arange(columns)
        pattern = Pattern((a.shape[0], columns), prefix_sums(met * columns), indices)
    maps = term_list(a, b, pattern) if kind == "terms" else {}
    return Product(a, b, pattern, kind, multiply_adds, maps)


def multiply_masked(a: Pattern, b: Pattern, mask: Pattern) -> Product:
    """The planned product of A and B at the entries of a pattern. Raises ShapeError."""
    check_shapes(a, b)
    if mask.shape != (a.shape[0], b.shape[1]):
        raise ShapeError(
            f"the product of A {a.shape} and B {b.shape} got a mask of shape {mask.shape}: pass a mask of "
            f"shape {(a.shape[0], b.shape[1])}"
        )
    arrays = (a.indptr, a.indices, b.indptr, b.indices, mask.indptr, mask.indices)
    dtype = map_dtype(a, b, mask.nnz)
    *operands, indptr, indices = (_input(array, dtype) for array in arrays)
    terms = np.empty(a.shape[0], np.int64)  # of each row those that belong to entries of the mask
    counts = b.shape[1], CHUNKS * numba.get_num_threads()
    loops.masked_terms(*operands, counts, indptr, indices, terms)
    return Product(a, b, mask, "masked", int(terms.sum()), term_list(a, b, mask, terms))


def term_list(
    a: Pattern, b: Pattern, pattern: Pattern, terms: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """The maps of kind "terms" of A·B for the entries of `pattern`.

    `terms` (rows,) counts the terms of each row, if the pattern leaves out entries of A·B.
    """
    row_terms = prefix_sums(row_sums(a, entry_terms(a, b)) if terms is None else terms)
    multiply_adds = int(row_terms[-1])
    dtype = map_dtype(a, b, max(multiply_adds, pattern.nnz))
    needed = (pattern.nnz + 1 + 2 * multiply_adds) * np.dtype(dtype).itemsize
    check_host_memory(needed, f"a list of {multiply_adds} terms")
    arrays = (a.indptr, a.indices, b.indptr, b.indices, pattern.indptr, pattern.indices, row_terms)
    *operands, indptr, indices, starts = (_input(array, dtype) for array in arrays)
    term_ptr = np.empty(pattern.nnz + 1, dtype)
    term_ptr[-1] = multiply_adds
    a_position, b_position = np.empty(multiply_adds, dtype), np.empty(multiply_adds, dtype)
    sizes = b.shape[1], CHUNKS * numba.get_num_threads()
    loops.term_map(*operands, sizes, indptr, indices, starts, term_ptr, a_position, b_position)
    maps = {"term_ptr": term_ptr, "a_position": a_position, "b_position": b_position}
    for array in maps.values():
        array.flags.writeable = False
    return maps


def check_shapes(a: Operand, b: Operand) -> None:
    """Raise ShapeError where A·B is not defined."""
    if a.shape[1] != b.shape[0]:
        raise ShapeError(
            f"A has shape {a.shape} and B has shape {b.shape}: pass an A with as many columns as B has rows"
        )


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


def selected_rows(a: Pattern, b: Pattern, terms: np.ndarray) -> Pattern:
    """The pattern of A·B where a row of A has one entry at most, of so many terms."""
    lengths = np.zeros(a.shape[0], np.int64)
    lengths[a.row_lengths > 0] = terms
    indptr = prefix_sums(lengths)
    entries = int(indptr[-1])
    check_host_memory(3 * 8 * entries, f"a product with {entries} entries")
    source = np.repeat(b.indptr[:-1][a.indices] - prefix_sums(terms)[:-1], terms)
    source += np.arange(entries)
    return Pattern((a.shape[0], b.shape[1]), indptr, b.indices[source])


def _new_indices(entries: int, rows: int, columns: int) -> np.ndarray:
    """The columns of a pattern, to be written. Raises DeviceError where memory does not suffice."""
    dtype = np.dtype(index_dtype(max(entries, rows, columns)))
    check_host_memory(entries * dtype.itemsize, f"a product with {entries} entries")
    return np.empty(entries, dtype)


def _united_rows(a: Pattern, b: Pattern, multiply_adds: int) -> Pattern:
    """The pattern of A·B of any structure."""
    rows, columns = shape = a.shape[0], b.shape[1]
    dtype = map_dtype(a, b, 0)
    operands = [_input(array, dtype) for array in (a.indptr, a.indices, b.indptr, b.indices)]
    _, a_indices, b_indptr, b_indices = operands
    words = -(-columns // 64)
    # Uniting B's rows word by word, 8 words at a time, beats doing so entry by entry unless they are short.
    by_words = a_indices.size * words // 8 < multiply_adds
    by_words &= (b_indptr.size - 1) * words * 8 <= BITS_BYTES
    bits = np.empty((b_indptr.size - 1 if by_words else 0, words), np.uint64)
    if by_words:
        loops.set_bits(b_indptr, b_indices, 0, columns, bits, np.empty(len(bits), np.bool_))
    sizes = (columns, CHUNKS * numba.get_num_threads())
    lengths, nowhere = np.empty(rows, np.int64), np.empty(0, np.int32)
    loops.product_rows(*operands, bits, *sizes, lengths, lengths, nowhere)
    indptr = prefix_sums(lengths)
    indices = _new_indices(int(indptr[-1]), *shape)
    loops.product_rows(*operands, bits, *sizes, lengths, indptr, indices)
    return Pattern(shape, indptr, indices)


def _input(array: np.ndarray, dtype: Any) -> np.ndarray:
    """A read-only view (the compiler has a type for these, so each loop is compiled for one), or copy."""
    view = array.astype(dtype, copy=False).view()
    view.flags.writeable = False
    return view
