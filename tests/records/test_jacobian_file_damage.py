"""A damaged or foreign file of Jacobians is refused, with a sentence that says why."""

import h5py
import numpy as np
import pytest
from seals import without_seal

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import JacobianFileError
from bppsa_cupy.records.file import load_jacobians, save_jacobians
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.system.hdf5 import USER_BLOCK

NAME = "002_ReLU"


@pytest.fixture
def path(tmp_path):
    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    save_jacobians(tmp_path / "a.h5", [JacobianRecord(2, "ReLU", Pattern.diagonal(4), data)])
    return tmp_path / "a.h5"


def replace(group, name, values):
    del group[name]
    group[name] = values


DAMAGES = {
    "format": (lambda f, g: f.attrs.update(format="other"), "format 'other'"),
    "version": (lambda f, g: f.attrs.update(format_version=9), "version 9"),
    "encoding": (lambda f, g: g.attrs.update({"encoding-type": "csc_matrix"}), "csc_matrix"),
    "no encoding": (lambda f, g: g.attrs.__delitem__("encoding-type"), "'encoding-type' .* is missing"),
    "batch": (lambda f, g: g.attrs.update(batch=3), "holds 2 samples, its batch is 3"),
    "layer": (lambda f, g: g.attrs.update(layer="x"), "'layer'"),
    "negative layer": (lambda f, g: g.attrs.update(layer=-1), "layer=-1: it takes an integer of at least 0"),
    "shape": (lambda f, g: g.attrs.update(shape=(4, 4, 4)), "must be two sizes"),
    "negative shape": (lambda f, g: g.attrs.update(shape=(4, -4)), "must be two sizes"),
    "rows": (lambda f, g: g.attrs.update(shape=(5, 4)), "indptr of shape"),
    "columns": (lambda f, g: g.attrs.update(shape=(4, 3)), "takes 0 to 2"),
    "geometry": (lambda f, g: g.attrs.update(geometry="{"), "is no JSON"),
    "geometry's kind": (lambda f, g: g.attrs.update(geometry="[]"), "JSON object"),
    "no data": (lambda f, g: g.__delitem__("data"), "data is missing"),
    "data's kind": (lambda f, g: replace(g, "data", np.zeros((4, 2), int)), "must hold real"),
    "data's axes": (lambda f, g: replace(g, "data", np.zeros(4)), "must have 2 axes"),
    "data's length": (lambda f, g: replace(g, "data", np.zeros((3, 2))), "its pattern takes"),
    "half precision": (lambda f, g: replace(g, "data", np.zeros((4, 2), "f2")), "float16"),
    "indptr": (lambda f, g: replace(g, "indptr", np.array([0, 2, 1, 3, 4])), "indptr decreases"),
    "indptr's end": (lambda f, g: replace(g, "indptr", np.array([0, 1, 2, 3, 5])), "must run from 0"),
    "indices": (lambda f, g: replace(g, "indices", np.array([0, 1, 2, -1])), "takes 0 to 3"),
    "group": (lambda f, g: replace(f, NAME, np.zeros(3)), "missing|data set"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_wrong_is_said(path, damage):
    act, message = DAMAGES[damage]
    without_seal(path)
    with h5py.File(path, "r+") as file:
        act(file, file[NAME])
    with pytest.raises(JacobianFileError, match=message) as caught:
        load_jacobians(path, sealed=False)
    assert "a.h5" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_flipped_bit_of_the_values_is_found(path):
    good = path.read_bytes()
    values = np.arange(8, dtype=np.float32).tobytes()
    at = good.index(values)
    for position in range(0, len(values) * 8, 7):
        bad = bytearray(good)
        bad[at + position // 8] ^= 1 << (position % 8)
        path.write_bytes(bad)
        with pytest.raises(JacobianFileError, match=r"a\.h5"):
            load_jacobians(path)


def test_any_flipped_bit_is_the_stated_error(path):
    good = path.read_bytes()
    positions = np.random.default_rng(0).choice(len(good) * 8, 1000, replace=False)
    for position in (*range(0, USER_BLOCK * 8, 5), *positions.tolist()):
        bad = bytearray(good)
        bad[position // 8] ^= 1 << position % 8
        path.write_bytes(bad)
        with pytest.raises(JacobianFileError, match=r"a\.h5"):
            load_jacobians(path)


def test_a_file_without_a_seal_is_read_on_request_alone(path):
    sealed = load_jacobians(path)[0]
    with pytest.raises(JacobianFileError, match="has one: read it as a sealed file"):
        load_jacobians(path, sealed=False)
    without_seal(path)
    with pytest.raises(JacobianFileError, match=r"without a seal.*sealed=False.*--unsealed"):
        load_jacobians(path)
    record = load_jacobians(path, sealed=False)[0]
    assert record.pattern == sealed.pattern
    np.testing.assert_array_equal(record.data, sealed.data)


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9])
def test_a_truncated_file_is_refused(path, fraction):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * fraction)])
    with pytest.raises(JacobianFileError, match=r"a\.h5"):
        load_jacobians(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(JacobianFileError, match=r"none\.h5 does not exist"):
        load_jacobians(tmp_path / "none.h5")
