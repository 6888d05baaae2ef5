"""Planned products of matrices in any of SciPy's formats and orders: as they are given, and given back."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import bppsa_cupy as bp
from bppsa_cupy.products import factors

FORMATS = ("csr", "csc", "bsr", "coo", "dia", "lil", "dok")


def unsorted(matrix):
    """The same CSR matrix with the entries of each row from the last column on."""
    order = np.concatenate(
        [np.arange(a, b)[::-1] for a, b in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)]
    )
    return type(matrix)((matrix.data[order], matrix.indices[order], matrix.indptr.copy()), shape=matrix.shape)


def made(form, rng, *, old=False):
    """A matrix of 6 by 6 in this form, none of whose values is 0."""
    dense = np.where(rng.random((6, 6)) < 0.4, rng.uniform(1, 2, (6, 6)), 0)
    kind = sp.csr_matrix if old else sp.csr_array
    if form == "unsorted":
        return unsorted(kind(dense))
    return kind(dense).tobsr((2, 3)) if form == "bsr" else kind(dense).asformat(form)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("form", [*FORMATS, "unsorted"])
def test_matrices_and_their_values(form, old, monkeypatch):
    rng = np.random.default_rng(0)
    a, b = made(form, rng, old=old), made(form, rng, old=old)
    product = bp.plan_product(a, b)
    result = product(a, b)
    expected = a.toarray() @ b.toarray()
    given_back = product.to_scipy(result)
    assert (type(given_back), given_back.format) == (type(a), a.format)
    np.testing.assert_allclose(given_back.toarray(), expected, atol=1e-14)
    np.testing.assert_array_equal(product(sp.csr_array(a), sp.csr_array(b)), result)
    if form in ("dia", "lil", "dok"):
        return
    np.testing.assert_array_equal(product(a.data, b.data), result)
    many = product(np.stack([a.data, 2 * a.data], -1), b.data)
    np.testing.assert_array_equal(many, np.stack([result, 2 * result], -1))
    # A pattern that is known takes neither sort nor digest.
    monkeypatch.setattr(factors, "matrix_of", None)
    np.testing.assert_array_equal(product(a, b), result)


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "unsorted"])
def test_indices_that_change_are_seen(form):
    a = made(form, np.random.default_rng(1))
    product = bp.plan_product(a, a)
    array = a.col if form == "coo" else a.indices
    array[...] = (array + 1) % array.max(initial=1)
    with pytest.raises(bp.PlanMismatchError, match="factor 1 has pattern"):
        product(a, a)


def test_an_empty_matrix():
    product = bp.plan_product(sp.csc_array((3, 0)), sp.coo_array((0, 2)))
    assert product(sp.csc_array((3, 0)), np.ones(0)).shape == (0,)


def test_no_matrix_gives_csr_array():
    pattern = bp.Pattern.dense(2, 2)
    product = bp.plan_product(pattern, sp.csc_matrix(np.ones((2, 2))))
    assert type(product.to_scipy(np.ones(4))) is sp.csr_array


@pytest.mark.parametrize("device", [None, "host"])
def test_pickles_and_copies(device):
    a = made("csc", np.random.default_rng(2))
    product = bp.plan_product(a, a, device=device)
    result = product(a, a)
    for other in (pickle.loads(pickle.dumps(product)), copy.deepcopy(product)):
        np.testing.assert_array_equal(other(a.data, a), result)
        assert repr(other) == repr(product) and other.to_scipy(result).format == "csc"


def test_a_bound_call_takes_the_patterns_order():
    a = made("unsorted", np.random.default_rng(3))
    product = bp.plan_product(a, a)
    with pytest.raises(bp.ShapeError, match="in the order of the pattern"):
        product.bind(a.data, a.data, out=np.empty(product.pattern.nnz))
