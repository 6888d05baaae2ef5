"""Patterns: what is no pattern is refused by name, before anything is cast."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import bppsa_cupy as bp

ROWS, COLUMNS = 2, 3
INDPTR, INDICES = [0, 1, 3], [2, 0, 1]

WRONG = {
    "index beyond int32": ((2, 3), INDPTR, [2**32, 0, 1], "indices run from 0 to 4294967296"),
    "index that is no integer": ((2, 3), INDPTR, [1.7, 0, 1], "indices of float64: it takes integers"),
    "pointer that is no integer": ((2, 3), [0.0, 1.0, 3.0], INDICES, "indptr of float64"),
    "pointer beyond int64": ((2, 3), np.array([0, 2**63 + 1, 3], np.uint64), INDICES, "indptr decreases"),
    "unsigned pointer that decreases": ((2, 3), np.array([0, 4, 3], np.uint64), INDICES, "indptr decreases"),
    "pointers of other rows": ((2, 3), [0, 3], INDICES, r"2 rows got indptr of shape \(2,\)"),
    "indices of two axes": (
        (2, 3),
        INDPTR,
        [INDICES],
        r"shape \(1, 3\): it takes \(3,\) and \(nnz,\)",
    ),
    "first pointer above 0": ((2, 3), [1, 1, 3], INDICES, "indptr runs from 1 to 3: it must run from 0"),
    "last pointer below nnz": ((2, 3), [0, 1, 2], INDICES, "from 0 to 2: .* the number of indices, 3"),
    "index that is the width": ((2, 3), INDPTR, [3, 0, 1], "indices run from 0 to 3: a matrix of 3 columns"),
    "an index twice in a row": ((2, 3), INDPTR, [2, 1, 1], "must increase strictly inside a row"),
    "negative index": ((2, 3), INDPTR, [-1, 0, 1], "indices run from -1"),
    "text": ((2, 3), INDPTR, ["2", "0", "1"], "indices of <U1"),
    "masked indices": ((2, 3), INDPTR, np.ma.array(INDICES, mask=[1, 0, 0]), "indices as a masked array"),
    "three sizes": ((2, 3, 1), INDPTR, INDICES, r"takes \(rows, columns\)"),
    "a size alone": (2, INDPTR, INDICES, r"takes \(rows, columns\)"),
    "negative size": ((2, -3), INDPTR, INDICES, "columns=-3"),
    "size that is no integer": ((2, 3.5), INDPTR, INDICES, "columns=3.5"),
    "bools": ((2, 3), INDPTR, [True, False, True], "indices of bool"),
}


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: bp.Pattern.dense("2", 3), "rows='2': it takes an integer of at least 0"),
        (lambda: bp.Pattern.dense(2, 1.5), "columns=1.5"),
        (lambda: bp.Pattern.diagonal(2.5), "rows=2.5"),
        (lambda: bp.Pattern.diagonal(-1), "rows=-1"),
        (lambda: bp.Pattern.diagonal(2**62), f"rows={2**62}: it takes an integer of at least 0 and at most"),
        (lambda: bp.Pattern.dense(2**62, 0), f"got {2**62} rows and 0 columns: it takes {2**59} entries"),
        (
            lambda: bp.Pattern.dense(2**31, 2**31),
            f"{2**31} rows and {2**31} columns: it takes {2**59} entries",
        ),
        (
            lambda: bp.Pattern.from_scipy((None,)),
            "from_scipy got a matrix of tuple: it takes a sparse matrix",
        ),
        (lambda: bp.Pattern.diagonal(2).to_scipy([1.0]), r"data of shape \(1,\): it takes \(2,\)"),
        (lambda: bp.Pattern.diagonal(2).to_scipy(["1", "2"]), "data of <U1: it takes numbers"),
    ],
)
def test_sizes_and_data_of_another_kind_are_refused(make, message):
    with pytest.raises(bp.ShapeError, match=message):
        make()


@pytest.mark.parametrize("shape, indptr, indices, message", WRONG.values(), ids=WRONG)
def test_what_is_no_pattern_is_refused_by_name(shape, indptr, indices, message):
    with pytest.raises(bp.ShapeError, match=message):
        bp.Pattern(shape, indptr, indices)


@given(st.sampled_from([np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64]))
def test_every_integer_type_is_taken(dtype):
    pattern = bp.Pattern((ROWS, COLUMNS), np.array(INDPTR, dtype), np.array(INDICES, dtype))
    assert pattern.indptr.dtype == pattern.indices.dtype == np.int32
    assert pattern == bp.Pattern((ROWS, COLUMNS), INDPTR, INDICES)


def test_arrays_are_read_only_and_sizes_are_a_tuple_of_ints():
    pattern = bp.Pattern([np.int32(ROWS), np.int64(COLUMNS)], INDPTR, INDICES)
    assert pattern.shape == (ROWS, COLUMNS) and [type(size) for size in pattern.shape] == [int, int]
    for array in (pattern.indptr, pattern.indices):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_matrix_of_scipys_gives_its_stored_positions_and_stays_as_it_is():
    """Unsorted, one position twice, an explicit zero; a copy is sorted and summed."""
    indices = np.array([2, 0, 2, 1])
    matrix = scipy.sparse.csr_array((np.array([1.0, 0.0, 3.0, 4.0]), indices, np.array([0, 3, 4])), (2, 3))
    assert bp.Pattern.from_scipy(matrix) == bp.Pattern((2, 3), [0, 2, 3], [0, 2, 1])
    np.testing.assert_array_equal(matrix.indices, [2, 0, 2, 1])
    assert matrix.nnz == 4


@pytest.mark.parametrize(
    "indptr, indices, selection",
    [([0, 1, 1], [2], True), ([0, 1, 2], [1, 1], True), (INDPTR, INDICES, False), ([0, 0, 0], [], True)],
)
def test_a_selection_has_one_entry_a_row_at_most(indptr, indices, selection):
    assert bp.Pattern((ROWS, COLUMNS), indptr, indices).is_selection is selection
