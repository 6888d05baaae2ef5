"""A damaged or foreign file of Jacobians is refused, with a sentence that says why."""

import h5py
import numpy as np
import pytest
from refusals import assert_refused

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import JacobianFileError
from bppsa_cupy.records.file import load_jacobians, save_jacobians
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.system.hdf5 import create, open_file


@pytest.fixture
def path(tmp_path):
    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    save_jacobians(tmp_path / "a.h5", [JacobianRecord(2, "ReLU", Pattern.diagonal(4), data)])
    return tmp_path / "a.h5"


DAMAGES = [
    (lambda f: f.attrs.update(format="other"), "'other'"),
    (lambda f: f.attrs.update(format_version=9), "version 9"),
    (lambda f: f["002_ReLU"].attrs.update(shape=(4, -4)), "columns=-4"),
    (lambda f: f["002_ReLU"].__delitem__("data"), "data"),
]


@pytest.mark.parametrize("damage, named", DAMAGES)
def test_what_is_wrong_is_said(path, damage, named):
    with open_file(path) as source, create(path.with_name("b.h5")) as target:
        target.attrs.update(source.attrs)
        for name in source:
            source.copy(name, target)
        damage(target)
    assert_refused(lambda: load_jacobians(path.with_name("b.h5")), JacobianFileError, named, "b.h5")


def test_a_file_without_a_seal_is_read_on_request_alone(path):
    sealed = load_jacobians(path)[0]
    with h5py.File(path, "r+") as file:
        file["more"] = 1
    path.write_bytes(path.read_bytes().partition(b"bppsa-seal")[0])
    assert_refused(lambda: load_jacobians(path), JacobianFileError, "without a seal", "sealed=False")
    with h5py.File(path, "r+") as file:
        del file["more"]
    record = load_jacobians(path, sealed=False)[0]
    assert record.pattern == sealed.pattern
    np.testing.assert_array_equal(record.data, sealed.data)
    with h5py.File(path, "r+") as file:
        del file["002_ReLU"]["indices"]
    assert_refused(lambda: load_jacobians(path, sealed=False), JacobianFileError, "indices", "write it again")
