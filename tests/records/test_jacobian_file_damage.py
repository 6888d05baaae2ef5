"""A damaged or foreign file of Jacobians is refused, with a sentence that says why."""

import h5py
import numpy as np
import pytest
from refusals import assert_refused
from seals import without_seal

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import JacobianFileError
from bppsa_cupy.records.file import load_jacobians, save_jacobians
from bppsa_cupy.records.record import JacobianRecord

NAME = "002_ReLU"


@pytest.fixture
def path(tmp_path):
    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    save_jacobians(tmp_path / "a.h5", [JacobianRecord(2, "ReLU", Pattern.diagonal(4), data)])
    return tmp_path / "a.h5"


def replace(group, name, values):
    del group[name]
    group[name] = values


DAMAGES = [
    (lambda f, g: f.attrs.update(format="other"), "'other'"),
    (lambda f, g: f.attrs.update(format_version=9), "version 9"),
    (lambda f, g: g.attrs.update({"encoding-type": "csc_matrix"}), "csc_matrix"),
    (lambda f, g: g.attrs.update(batch=3), "2 samples"),
    (lambda f, g: g.attrs.update(shape=(4, -4)), "columns=-4"),
    (lambda f, g: g.attrs.update(shape=(4, 3)), "0 to 2"),
    (lambda f, g: g.__delitem__("data"), "data"),
    (lambda f, g: replace(g, "data", np.zeros((3, 2))), "(3, 2)"),
    (lambda f, g: replace(g, "data", np.zeros((4, 2), "f2")), "float16"),
    (lambda f, g: replace(g, "indptr", np.array([0, 2, 1, 3, 4])), "indptr"),
    (lambda f, g: replace(g, "indices", np.array([0, 1, 2, -1])), "0 to 3"),
]


@pytest.mark.parametrize("damage, named", DAMAGES)
def test_what_is_wrong_is_said(path, damage, named):
    without_seal(path)
    with h5py.File(path, "r+") as file:
        damage(file, file[NAME])
    assert_refused(lambda: load_jacobians(path, sealed=False), JacobianFileError, named, "a.h5")


def test_a_file_without_a_seal_is_read_on_request_alone(path):
    sealed = load_jacobians(path)[0]
    with pytest.raises(JacobianFileError, match="has a seal: read it with sealed=True"):
        load_jacobians(path, sealed=False)
    without_seal(path)
    with pytest.raises(JacobianFileError, match=r"without a seal.*sealed=False.*--unsealed"):
        load_jacobians(path)
    record = load_jacobians(path, sealed=False)[0]
    assert record.pattern == sealed.pattern
    np.testing.assert_array_equal(record.data, sealed.data)
