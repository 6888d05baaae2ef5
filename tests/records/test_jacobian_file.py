"""Saving and loading Jacobians is the identity, and damaged files are refused."""

import h5py
import numpy as np
import pytest
import scipy.sparse
from executors import make_device
from hypothesis import given, settings
from hypothesis import strategies as st
from record_cases import assert_same, make

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import JacobianFileError, ShapeError
from bppsa_cupy.records.file import load_jacobians, save_jacobians
from bppsa_cupy.records.record import JacobianRecord


def records():
    yield make(0, (7, 5), None, geometry={"kernel_size": [3, 3], "input_shape": [1, 4, 4]}, gradient_norm=0.5)
    yield make(1, (5, 6), 3, dtype=np.float64)
    yield make(3, (6, 4), 1, seed=1)
    yield make(4, (4, 4), 2, step=0)
    yield make(4, (4, 4), 2, step=1, lengths=np.array([1, 2]))
    yield make(4, (4, 4), 2, step=2, lengths=np.array([1, 2]))
    yield make(4, (4, 4), 3, step=3, lengths=np.array([1, 2, 0])).select(1)
    yield make(4, (4, 4), 2, step=0, direction="backward")
    yield make(5, (4, 0), None, density=0)
    yield make(6, (3, 2), 4, density=0)


def test_save_then_load_is_the_identity(tmp_path):
    given_records = list(records())
    save_jacobians(tmp_path / "a.h5", given_records)
    assert_same(load_jacobians(tmp_path / "a.h5"), given_records)
    save_jacobians(tmp_path / "b.h5", load_jacobians(tmp_path / "a.h5"))
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


@settings(max_examples=30)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=4),
    batch=st.one_of(st.none(), st.integers(0, 3)),
    density=st.floats(0, 1),
    compress=st.booleans(),
)
def test_the_identity_holds_for_any_records(tmp_path, sizes, batch, density, compress):
    given_records = [make(k, shape, batch, density=density) for k, shape in enumerate(sizes)]
    save_jacobians(tmp_path / "a.h5", given_records, compress=compress)
    assert_same(load_jacobians(tmp_path / "a.h5"), given_records)


def test_a_matrix_is_written_as_anndata_reads_it(tmp_path):
    record = make(2, (7, 5), 3)
    save_jacobians(tmp_path / "a.h5", [record.select(1)])
    with h5py.File(tmp_path / "a.h5") as file:
        group = file["002_Conv2d"]
        assert group.attrs["encoding-type"] == "csr_matrix"
        assert group.attrs["encoding-version"] == "0.1.0"
        parts = [group[name][()] for name in ("data", "indices", "indptr")]
        assert parts[1].dtype == parts[2].dtype == np.int32
        matrix = scipy.sparse.csr_array(tuple(parts), shape=tuple(group.attrs["shape"]))
        assert all(group[name].fletcher32 for name in ("data", "indices", "indptr"))
    np.testing.assert_array_equal(matrix.toarray(), record.to_scipy(1).toarray())
    loaded = load_jacobians(tmp_path / "a.h5")[0]
    assert (loaded.sample, loaded.shared, loaded.batch) == (1, False, 1)


def test_a_record_gives_the_matrix_of_a_sample():
    record = make(0, (4, 5), 3)
    for sample in range(3):
        matrix = record.to_scipy(sample)
        assert matrix.nnz == record.pattern.nnz
        np.testing.assert_array_equal(matrix.data, record.data[:, sample])
    matrix.data[:] = 9
    assert record.data.max() < 9
    with pytest.raises(ShapeError, match="sample 3 was asked for, the record holds samples 0 to 2"):
        record.to_scipy(3)
    with pytest.raises(ShapeError, match="any sample from 0"):
        make(0, (4, 5), None).to_scipy(-1)
    np.testing.assert_array_equal(make(0, (4, 5), None).to_scipy(7).data, make(0, (4, 5), None).data)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"layer": 1.5}, "layer=1.5: it takes an integer of at least 0"),
        ({"layer": "0"}, "layer='0'"),
        ({"step": -1}, "step=-1"),
        ({"sample": -1}, "sample=-1"),
        ({"gradient_norm": "x"}, "gradient_norm='x': it takes a number"),
        ({"gradient_norm": -1.0}, "gradient_norm=-1.0"),
        ({"name": 3}, "a int as name: it takes a str"),
        ({"direction": None}, "a NoneType as direction"),
        ({"geometry": 3}, "a int as geometry: it takes a dict"),
        ({"pattern": 3}, "a int as pattern: it takes a Pattern"),
        ({"lengths": [0.5]}, "got lengths of float64: it takes integers"),
        ({"lengths": [1, 2]}, r"got lengths of shape \(2,\)"),
        ({"lengths": [-1]}, "integers from 0"),
        ({"data": [1.0, 2.0]}, "0 ReLU got a list as data: it takes an array"),
        ({"data": np.ma.masked_array([1.0, 2.0], [0, 1])}, "0 ReLU got data as a masked array"),
    ],
)
def test_a_record_checks_its_fields(fields, message):
    """What a record takes a file takes too, and gives again."""
    right = {"layer": 0, "name": "ReLU", "pattern": Pattern.diagonal(2), "data": np.zeros(2)}
    with pytest.raises(ShapeError, match=message):
        JacobianRecord(**{**right, **fields})


def test_what_is_no_record_is_not_saved(tmp_path):
    for source in (3, [3], None):
        with pytest.raises(JacobianFileError, match="it takes a network, or a list of JacobianRecords"):
            save_jacobians(tmp_path / "a.h5", source)
    with pytest.raises(JacobianFileError, match="compress='no': it takes True or False"):
        save_jacobians(tmp_path / "a.h5", [make(0, (2, 2), 1)], compress="no")
    with pytest.raises(JacobianFileError, match="sealed='False': it takes True or False"):
        load_jacobians(tmp_path / "a.h5", sealed="False")
    with pytest.raises(JacobianFileError, match="None is no path"):
        save_jacobians(None, [make(0, (2, 2), 1)])
    assert not list(tmp_path.iterdir())


@pytest.mark.gpu
def test_a_record_gives_the_matrix_of_a_sample_on_the_gpu():
    make_device("cuda")
    record = make(0, (4, 5), 3)
    np.testing.assert_array_equal(record.to_cupyx(2).get().toarray(), record.to_scipy(2).toarray())
