"""Files of Jacobians in other readers: AnnData's, and what its format asks for."""

import warnings

import h5py
import numpy as np
import pytest
import scipy.sparse
from record_cases import assert_same, make

import bppsa_cupy as bp


@pytest.fixture(scope="module")
def read_elem():
    """AnnData's reader of a group."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own dependencies
        io = pytest.importorskip("anndata.io", reason="files are read by anndata, of the extra test")
    return io.read_elem


def records():
    """Batched and shared ones, empty ones, both dtypes, and steps of one pattern."""
    yield make(0, (7, 5), None)
    yield make(1, (5, 6), 3, dtype=np.float64)
    yield from (make(4, (4, 4), 2, step=step) for step in range(3))
    yield make(6, (3, 2), 4, density=0)


def test_anndata_reads_every_sample(tmp_path, read_elem):
    for sample in range(2):
        selected = [record.select(sample) for record in records()]
        bp.save_jacobians(tmp_path / "j.h5", selected)
        assert_same(bp.load_jacobians(tmp_path / "j.h5"), selected)
        with h5py.File(tmp_path / "j.h5") as file:
            groups = sorted(file.values(), key=lambda group: group.attrs["position"])
            for group, record in zip(groups, records(), strict=True):
                matrix, expected = read_elem(group), record.to_scipy(sample)
                assert isinstance(matrix, scipy.sparse.csr_matrix | scipy.sparse.csr_array)
                assert matrix.dtype == expected.dtype and matrix.shape == expected.shape
                for name in ("data", "indices", "indptr"):
                    np.testing.assert_array_equal(getattr(matrix, name), getattr(expected, name))
