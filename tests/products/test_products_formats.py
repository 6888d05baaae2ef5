"""Planned products of matrices in any of SciPy's formats and orders: as they are given, and given back."""

import functools
import operator
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import bppsa_cupy as bp

FORMATS = ("csr", "csc", "bsr", "coo", "dia", "lil", "dok")
ORDERED = ("csc", "bsr", "coo", "unsorted", "transposed")


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
    if form == "transposed":
        return kind(dense).T
    return kind(dense).tobsr((3, 3)) if form == "bsr" else kind(dense).asformat(form)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("form", [*FORMATS, "unsorted", "transposed"])
def test_matrices_and_their_values(form, old):
    rng = np.random.default_rng(0)
    a, b = made(form, rng, old=old), made(form, rng, old=old)
    product = bp.plan_product(a, b)
    result = product(a, b)
    expected = a.toarray() @ b.toarray()
    given_back = product.to_scipy(result)
    assert given_back.format == (a.format if form in ("csc", "bsr", "transposed") else "csr")
    assert isinstance(given_back, sp.sparray) == isinstance(a, sp.sparray)
    np.testing.assert_allclose(given_back.toarray(), expected, atol=1e-14)
    np.testing.assert_array_equal(product(sp.csr_array(a), sp.csr_array(b)), result)
    for out_format in ("csr", "csc"):
        other = bp.plan_product(a, b, out_format=out_format)
        matrix = other.to_scipy(other(a, b))
        assert matrix.format == out_format and matrix.has_sorted_indices
        np.testing.assert_allclose(matrix.toarray(), expected, atol=1e-14)
    if form in ("dia", "lil", "dok"):
        return
    np.testing.assert_array_equal(product(a.data, b.data), result)
    many = product(np.stack([a.data, 2 * a.data], -1), b.data)
    np.testing.assert_allclose(many, np.stack([result, 2 * result], -1), rtol=1e-14)


@pytest.mark.parametrize("form", ["csr", *ORDERED])
def test_indices_that_change_are_seen(form):
    a = made(form, np.random.default_rng(1))
    product = bp.plan_product(a, a)
    array = a.col if form == "coo" else a.indices
    array[...] = (array + 1) % array.max(initial=1)
    with pytest.raises(bp.PlanMismatchError, match="factor 1 has pattern"):
        product(a, a)


CHILD = """
import pathlib, sys
import numpy as np
import bppsa_cupy as bp

for path in pathlib.Path(sys.argv[1]).glob("*.h5"):
    product = bp.PlannedProduct.load(path)
    with np.load(path.with_suffix(".npz")) as data:
        values = [data[f"arr_{k}"] for k in range(len(data))]
    many = [np.stack([array, 2 * array], -1) for array in values]
    dense = [product.to_scipy(product(*values)).toarray(), product.to_scipy(product(*many), 1).toarray()]
    np.save(path.with_suffix(".npy"), dense)
"""


def test_a_saved_product_keeps_every_order_of_values(tmp_path):
    rng, chains = np.random.default_rng(4), {}
    for form in ORDERED:
        for forms in ((form, "csr"), ("csr", form), (form, form), (form, "csr", form)):
            chains["-".join(forms)] = [made(each, rng) for each in forms]
    for name, chain in chains.items():
        bp.plan_product(*chain).save(tmp_path / f"{name}.h5")
        np.savez(tmp_path / f"{name}.npz", *(matrix.data for matrix in chain))
    subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], check=True)
    for name, chain in chains.items():
        expected = functools.reduce(operator.matmul, chain).toarray()
        results = np.load(tmp_path / f"{name}.npy")
        np.testing.assert_allclose(results, [expected, 2 ** len(chain) * expected], rtol=1e-13, err_msg=name)
        loaded = bp.PlannedProduct.load(tmp_path / f"{name}.h5")
        np.testing.assert_allclose(loaded.to_scipy(loaded(*chain)).toarray(), expected, rtol=1e-13)
        values = [matrix.data for matrix in chain]
        out = np.empty(loaded.pattern.nnz)
        loaded.bind(*values, out=out)()
        np.testing.assert_array_equal(out, loaded(*values))
        stored = pickle.dumps(loaded)
        assert b"pairs" not in stored  # which the first call has made
        again = pickle.loads(stored)
        again.save(tmp_path / "again.h5")
        once_more = bp.PlannedProduct.load(tmp_path / "again.h5")
        np.testing.assert_array_equal(once_more(*values), loaded(*values))
