"""Saving and loading Jacobians is the identity, and damaged files are refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_cases import assert_same, make
from refusals import assert_refused

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


def test_a_record_gives_the_matrix_of_a_sample():
    record = make(0, (4, 5), 3)
    for sample in range(3):
        matrix = record.to_scipy(sample)
        assert matrix.nnz == record.pattern.nnz
        np.testing.assert_array_equal(matrix.data, record.data[:, sample])
    matrix.data[:] = 9
    assert record.data.max() < 9
    with pytest.raises(ShapeError, match="no sample 3: pass samples 0 to 2"):
        record.to_scipy(3)
    with pytest.raises(ShapeError, match="any sample from 0"):
        make(0, (4, 5), None).to_scipy(-1)
    np.testing.assert_array_equal(make(0, (4, 5), None).to_scipy(7).data, make(0, (4, 5), None).data)


def record(**fields):
    """What a record takes a file takes too, and gives again."""
    right = {"layer": 0, "name": "ReLU", "pattern": Pattern.diagonal(2), "data": np.zeros(2)}
    JacobianRecord(**{**right, **fields})


TWINS = [make(0, (2, 2), 1)] * 2
REFUSED = [
    (lambda path: record(lengths=[0.5]), ShapeError, "float64", "integers"),
    (lambda path: record(lengths=[1, 2]), ShapeError, "[1, 2]", "1 integers"),
    (lambda path: record(data=np.zeros(4)), ShapeError, "(4,)", "(2,) or (2, B)"),
    (lambda path: record(data=np.zeros(2, np.int64)), ShapeError, "int64", "0 ReLU"),
    (lambda path: record(data=np.zeros((2, 1)), sample=0), ShapeError, "(2, 1)", "(2,)"),
    (lambda path: record(data=np.ma.masked_array([1.0, 2.0], [0, 1])), ShapeError, "masked", "0 ReLU"),
    (lambda path: save_jacobians(path, TWINS), JacobianFileError, "2 records", "000_Conv2d_forward_000000"),
    (lambda path: save_jacobians(None, []), JacobianFileError, "None", "path"),
    (lambda path: load_jacobians(path), JacobianFileError, "a.h5", "exist"),
]  # fmt: skip


@pytest.mark.parametrize("call, error, value, fix", REFUSED)
def test_refused_arguments(tmp_path, call, error, value, fix):
    assert_refused(lambda: call(tmp_path / "a.h5"), error, value, fix)
    assert not list(tmp_path.iterdir())
