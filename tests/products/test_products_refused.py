"""Planned products refuse what does not fit, and name both sides."""

import numpy as np
import pytest
import scipy.sparse

import bppsa_cupy as bp

A = scipy.sparse.csr_array(np.array([[1.0, 2.0, 0.0], [0.0, 3.0, 4.0]]))
B = scipy.sparse.csr_array(np.array([[5.0, 0.0], [6.0, 7.0], [0.0, 8.0]]))
PRODUCT = bp.plan_product(A, B)
DUPLICATES = scipy.sparse.csr_array((np.ones(2), [0, 0], [0, 2, 2]), shape=(2, 3))
OUTSIDE = scipy.sparse.csc_array((np.ones(2), [1, 0], [0, 1, 1, 2]), shape=(2, 3))
OUTSIDE.indices[0] = 7


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ((A,), "plan_product got 1 factors: it takes two or more"),
        ((A, A), r"factor 1 of shape \(2, 3\) times factor 2 of shape \(2, 3\): the columns of one must be"),
        ((A, B, B), r"factor 2 of shape \(3, 2\) times factor 3"),
        (
            (A, 3),
            "plan_product got factor 2 of int: it takes a Pattern, a JacobianRecord, or a sparse matrix",
        ),
        ((A.toarray(), B), "factor 1 of ndarray"),
        ((DUPLICATES, B), r"factor 1 with 2 values for 1 entries, .* sum_duplicates\(\) adds them up"),
        ((DUPLICATES.tocoo(), B), "factor 1 with 2 values for 1 entries"),
        ((scipy.sparse.coo_array(np.ones(3)), B), "factor 1 of coo_array that is no matrix: 1 axes"),
        ((OUTSIDE, B), "factor 1 of csc_array that is no matrix: .*indices"),
    ],
)
def test_factors(factors, words):
    with pytest.raises(bp.ShapeError, match=words):
        bp.plan_product(*factors)


ROWS, COLUMNS = 2**16, 2**20
FULL_ROW = bp.Pattern((2, COLUMNS), np.array([0, COLUMNS, COLUMNS]), np.arange(COLUMNS))
AND_ONE = bp.Pattern((2, COLUMNS), np.array([0, COLUMNS, COLUMNS + 1]), np.append(np.arange(COLUMNS), 5))


@pytest.mark.parametrize(
    ("factors", "kind"),
    [
        ((bp.Pattern.dense(ROWS, 1), bp.Pattern.dense(1, COLUMNS)), "select_rows of one column"),
        ((bp.Pattern((ROWS, 2), np.arange(ROWS + 1), np.zeros(ROWS, int)), FULL_ROW), "select_rows"),
        ((bp.Pattern.dense(ROWS, 2), bp.Pattern.dense(2, COLUMNS)), "dense"),
        ((bp.Pattern.dense(ROWS, 2), FULL_ROW), "full_rows"),
        ((bp.Pattern.dense(ROWS, 2), AND_ONE), "row_wise"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_product_beyond_the_memory_is_refused_with_its_bytes(factors, kind):
    with pytest.raises(bp.DeviceError, match=rf"{ROWS * COLUMNS} entries takes \d+ bytes, \d+ are free"):
        bp.plan_product(*factors)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((A.data,), "a product of 2 factors got values of 1"),
        (
            (A.data[1:], B.data),
            r"factor 1 got values of shape \(3,\): its pattern, of shape \(2, 3\), takes \(4,\)",
        ),
        ((A.data, np.ones((5, 2))), r"factor 2 got values of shape \(5, 2\): .* takes \(4,\) or \(4, 2\)"),
        ((np.ones((4, 3)), np.ones((4, 2))), r"factor 2 got .* \(4, 2\): .* takes \(4,\) or \(4, 3\)"),
        ((np.ones((4, 1, 1)), B.data), r"factor 1 got values of shape \(4, 1, 1\)"),
        ((A.data * 1j, B.data), "values of complex128, float64: it takes real numbers of at most 64 bits"),
        ((np.ma.ones(4), B.data), "masked array"),
        ((A.data.astype(str), B.data), "it takes numbers"),
    ],
)
def test_values(values, words):
    with pytest.raises(bp.ShapeError, match=words):
        PRODUCT(*values)


def test_another_pattern_is_refused_by_digest():
    other = scipy.sparse.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 4.0]]))
    digests = [bp.Pattern.from_scipy(matrix).digest[:12] for matrix in (other, A)]
    words = (
        rf"factor 1 has pattern {digests[0]} of shape \(2, 3\) with 4 entries, the product was planned for "
        rf"pattern {digests[1]} of shape \(2, 3\) with 4 entries: plan one"
    )
    for given in (other, other.tocoo(), (bp.Pattern.from_scipy(other), other.data)):
        with pytest.raises(bp.PlanMismatchError, match=words):
            PRODUCT(given, B)
    # SciPy leaves out what cancels; the planned pattern does not.
    cancelled = scipy.sparse.csr_array(A.toarray() * [[1, 0, 1], [1, 1, 1]])
    cancelled.eliminate_zeros()
    with pytest.raises(bp.PlanMismatchError, match=r"with 3 entries, .* with 4 entries"):
        PRODUCT(cancelled, B)


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        ([0.0] * 4, bp.DeviceError, "out of list: it takes a numpy array"),
        (np.empty(3), bp.ShapeError, r"out of float64 and shape \(3,\): .* float64 of shape \(4,\)"),
        (np.empty((4, 1)), bp.ShapeError, r"shape \(4, 1\)"),
        (np.empty(4, np.float32), bp.ShapeError, "out of float32"),
        (np.empty(8)[::2], bp.ShapeError, "not C-contiguous or is read-only"),
        (read_only(np.empty(4)), bp.ShapeError, "read-only"),
        (np.ma.masked_array(np.empty(4)), bp.ShapeError, "a product got out as a masked array"),
    ],
)
def test_out(out, error, words):
    for call in (PRODUCT, PRODUCT.bind):
        with pytest.raises(error, match=words):
            call(A.data, B.data, out=out)


def test_out_may_not_overlap_a_factor():
    memory = np.zeros(10)
    memory[:4] = A.data
    for start in (0, 3):
        with pytest.raises(bp.ShapeError, match="overlaps"):
            PRODUCT(memory[:4], B.data, out=memory[start : start + 4])
    expected = PRODUCT(A.data, B.data)
    assert np.array_equal(PRODUCT(memory[:4], B.data, out=memory[4:8]), expected)


@pytest.mark.parametrize("given", [A.data.astype(np.float32), np.repeat(A.data, 2)[::2], A.data.tolist(), A])
def test_bind_copies_nothing(given):
    with pytest.raises(bp.ShapeError, match=r"factor 1 would be copied, .* takes float64 arrays on host"):
        PRODUCT.bind(given, B.data, out=np.empty(4))


@pytest.mark.parametrize(
    ("values", "sample", "words"),
    [
        (np.zeros(3), 0, r"values of \(3,\): the product has \(4,\) or \(4, B\)"),
        (np.zeros((4, 2)), 2, "sample=2: it takes an integer of at least 0 and at most 1"),
        (np.zeros(4), -1, "sample=-1"),
        (3, 0, "values of int"),
    ],
)
def test_to_scipy(values, sample, words):
    with pytest.raises(bp.ShapeError, match=words):
        PRODUCT.to_scipy(values, sample)
