"""Patterns: the integers that they take, and what they make of SciPy's matrices."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import bppsa_cupy as bp

ROWS, COLUMNS = 2, 3
INDPTR, INDICES = [0, 1, 3], [2, 0, 1]


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
