"""Planned products refuse what does not fit, and name both sides."""

import numpy as np
import pytest
import scipy.sparse
from refusals import assert_refused

import bppsa_cupy as bp

A = scipy.sparse.csr_array(np.array([[1.0, 2.0, 0.0], [0.0, 3.0, 4.0]]))
B = scipy.sparse.csr_array(np.array([[5.0, 0.0], [6.0, 7.0], [0.0, 8.0]]))
PRODUCT, OTHER = bp.plan_product(A, B), scipy.sparse.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 4.0]]))
DUPLICATES = scipy.sparse.csr_array((np.ones(2), [0, 0], [0, 2, 2]), shape=(2, 3))
OUTSIDE = scipy.sparse.csc_array((np.ones(2), [1, 0], [0, 1, 1, 2]), shape=(2, 3))
OUTSIDE.indices[0] = 7
# SciPy leaves out what cancels; the planned pattern does not.
CANCELLED = scipy.sparse.csr_array(A.toarray() * [[1, 0, 1], [1, 1, 1]])
CANCELLED.eliminate_zeros()
READ_ONLY = np.empty(4)
READ_ONLY.flags.writeable = False
ROWS, COLUMNS = 2**16, 2**20
FULL_ROW = bp.Pattern((2, COLUMNS), np.array([0, COLUMNS, COLUMNS]), np.arange(COLUMNS))
ENTRIES = f"{ROWS * COLUMNS} entries"
dense, plan = bp.Pattern.dense, bp.plan_product


def out(array):
    PRODUCT(A.data, B.data, out=array)


def bound(values, array=None):
    PRODUCT.bind(values, B.data, out=np.empty(4) if array is None else array)


ARGUMENT, SHAPE = bp.ArgumentError, bp.ShapeError
DEVICE, MISMATCH = bp.DeviceError, bp.PlanMismatchError
REFUSED = [
    (lambda: plan(A), ARGUMENT, "1 factors", "two"),
    (lambda: plan(A, A), SHAPE, "factor 1 has shape (2, 3)", "factor 2 has shape (2, 3)"),
    (lambda: plan(A, B, B), SHAPE, "factor 2 has shape (3, 2)", "factor 3"),
    (lambda: plan(A, 3), ARGUMENT, "factor 2 of int", "Pattern"),
    (lambda: plan(A.toarray(), B), ARGUMENT, "factor 1 of ndarray", "sparse matrix"),
    (lambda: plan(DUPLICATES, B), SHAPE, "2 values for 1 entries", "sum_duplicates()"),
    (lambda: plan(DUPLICATES.tocoo(), B), SHAPE, "2 values for 1 entries", "factor 1"),
    (lambda: plan(scipy.sparse.coo_array(np.ones(3)), B), SHAPE, "coo_array", "1 axes"),
    (lambda: plan(OUTSIDE, B), SHAPE, "csc_array", "indices"),
    (lambda: plan(dense(ROWS, 1), dense(1, COLUMNS)), DEVICE, ENTRIES, "free"),
    (lambda: plan(dense(ROWS, 2), dense(2, COLUMNS)), DEVICE, ENTRIES, "free"),
    (lambda: plan(dense(ROWS, 2), FULL_ROW), DEVICE, ENTRIES, "free"),
    (lambda: bp.plan_gram(A, triangle="left"), ARGUMENT, "'left'", "'upper'"),
    (lambda: bp.plan_gram(A, weights=B), SHAPE, "(3, 2)", "(2, 3)"),
    (lambda: plan(A, B, out_format="dia"), ARGUMENT, "'dia'", "'csc'"),
    (lambda: plan(A, B, out_format="bsr"), ARGUMENT, "'bsr'", "'csr'"),
    (lambda: plan(A, B, mask=A), SHAPE, "(3, 2)", "mask of shape (2, 3)"),
    (lambda: PRODUCT(A.data), ARGUMENT, "2 factors", "1"),
    (lambda: PRODUCT(A.data[1:], B.data), SHAPE, "(3,)", "(4,)"),
    (lambda: PRODUCT(A.data, np.ones((5, 2))), SHAPE, "(5, 2)", "(4,) or (4, 2)"),
    (lambda: PRODUCT(np.ones((4, 3)), np.ones((4, 2))), SHAPE, "(4, 2)", "(4, 3)"),
    (lambda: PRODUCT(np.ones((4, 1, 1)), B.data), SHAPE, "factor 1", "(4, 1, 1)"),
    (lambda: PRODUCT(A.data * 1j, B.data), SHAPE, "complex128", "real"),
    (lambda: PRODUCT(np.ma.ones(4), B.data), SHAPE, "masked", "array"),
    (lambda: PRODUCT(OTHER, B), MISMATCH, "factor 1", bp.Pattern.from_scipy(OTHER).digest[:12]),
    (lambda: PRODUCT((bp.Pattern.from_scipy(OTHER), OTHER.data), B), MISMATCH, "factor 1", "4 entries"),
    (lambda: PRODUCT(CANCELLED, B), MISMATCH, "3 entries", "4 entries"),
    (lambda: out([0.0] * 4), DEVICE, "list", "numpy"),
    (lambda: out(np.empty((4, 1))), SHAPE, "(4, 1)", "(4,)"),
    (lambda: out(np.empty(4, np.float32)), SHAPE, "float32", "float64"),
    (lambda: out(np.empty(8)[::2]), SHAPE, "C-contiguous", "out"),
    (lambda: out(READ_ONLY), SHAPE, "read-only", "out"),
    (lambda: bound(A.data, np.empty(3)), SHAPE, "(3,)", "(4,)"),
    (lambda: bound(A.data.astype(np.float32)), SHAPE, "factor 1", "copy"),
    (lambda: bound(np.repeat(A.data, 2)[::2]), SHAPE, "factor 1", "copy"),
    (lambda: bound(A), SHAPE, "factor 1", "copy"),
    (lambda: PRODUCT.to_scipy(np.zeros(3)), SHAPE, "(3,)", "(4, B)"),
    (lambda: PRODUCT.to_scipy(np.zeros((4, 2)), 2), SHAPE, "sample=2", "at most 1"),
    (lambda: bp.PlannedProduct.load("missing.h5"), bp.PlanError, "missing.h5", "exist"),
]  # fmt: skip


@pytest.mark.parametrize("call, error, value, fix", REFUSED)
def test_refused_arguments(call, error, value, fix):
    assert_refused(call, error, value, fix)


def test_out_may_not_overlap_a_factor():
    memory = np.zeros(10)
    memory[:4] = A.data
    for start in (0, 3):
        with pytest.raises(bp.ShapeError):
            PRODUCT(memory[:4], B.data, out=memory[start : start + 4])
    expected = PRODUCT(A.data, B.data)
    assert np.array_equal(PRODUCT(memory[:4], B.data, out=memory[4:8]), expected)
