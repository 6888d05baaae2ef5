"""HDF5 files are whole or absent, and damage is found before anything is read."""

import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

from bppsa_cupy.errors import BppsaError, PlanError
from bppsa_cupy.plan import Plan
from bppsa_cupy.system import hdf5

ARRAYS = {
    "empty": np.zeros(0),
    "no rows": np.zeros((0, 3), np.int32),
    "no columns": np.zeros((3, 0), np.float32),
    "one": np.array([7], np.int64),
    "odd": np.arange(35, dtype=np.float32).reshape(5, 7),
    "deep": np.arange(2 * 3 * 5 * 7, dtype=np.uint8).reshape(2, 3, 5, 7),
    "booleans": np.array([True, False, True]),
    "many chunks": np.arange(300_000, dtype=np.float64).reshape(3, 100_000),
}


def write(path, *, sealed=True):
    with hdf5.create(path, sealed=sealed) as file:
        file.attrs["format"] = "test"
        hdf5.write_array(file, "x", np.arange(10.0))


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("compress", [True, False])
def test_what_is_written_is_read(tmp_path, sealed, compress):
    with hdf5.create(tmp_path / "a.h5", sealed=sealed) as file:
        for name, array in ARRAYS.items():
            stored = hdf5.write_array(file, name, array, compress=compress)
            assert stored.fletcher32
    with hdf5.open_file(tmp_path / "a.h5", sealed=sealed, error=PlanError) as file:
        for name, array in ARRAYS.items():
            read = hdf5.read_array(file, name, kinds="biuf", ndim=array.ndim, error=PlanError)
            assert read.dtype == array.dtype
            np.testing.assert_array_equal(read, array)
    assert os.listdir(tmp_path) == ["a.h5"]


def test_the_same_content_gives_the_same_bytes(tmp_path):
    for name in "ab":
        write(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("exception", [RuntimeError, KeyboardInterrupt, PlanError])
def test_an_exception_leaves_the_older_file(tmp_path, exception):
    path = tmp_path / "a.h5"
    write(path)
    before = path.read_bytes()
    with pytest.raises(exception), hdf5.create(path) as file:
        hdf5.write_array(file, "y", np.ones(1000))
        raise exception("stop")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.h5"]


def test_a_link_is_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "a.h5")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.h5").is_file()


def test_a_device_is_never_replaced():
    with pytest.raises(PlanError, match="/dev/full cannot be written"):
        with hdf5.create("/dev/full", error=PlanError):
            pass


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(BppsaError, match=r"none/a\.h5 cannot be written \(No such file"):
        write(tmp_path / "none" / "a.h5")


#: A full disk, played by the limit on a file's size; in a process of its own, which must end well.
FULL_DISK = """
import numpy as np, resource, signal, sys
from bppsa_cupy.plan import Plan
from bppsa_cupy.system import hdf5
from bppsa_cupy.errors import PlanError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    with hdf5.create(sys.argv[1], sealed=sys.argv[2] == "sealed", error=PlanError) as file:
        for k in range(20):
            hdf5.write_array(file, f"x{k}", np.random.default_rng(k).random(20_000))
except PlanError as error:
    print(error)
"""


@pytest.mark.parametrize("sealed", ["sealed", "open"])
def test_a_full_disk_is_reported(tmp_path, sealed):
    path = tmp_path / "a.h5"
    write(path)
    before = path.read_bytes()

    command = [sys.executable, "-c", FULL_DISK, str(path), sealed]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=600)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith(f"{path} cannot be written (File too large): free some space")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.h5"]


def test_every_flipped_bit_is_found(tmp_path):
    path = tmp_path / "a.h5"
    write(path)
    good = path.read_bytes()
    generator = np.random.default_rng(0)
    for position in generator.choice(len(good) * 8, 300, replace=False):
        bad = bytearray(good)
        bad[position // 8] ^= 1 << (position % 8)
        path.write_bytes(bad)
        with pytest.raises(PlanError, match=r"a\.h5"), hdf5.open_file(path, error=PlanError):
            pass


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("length", [0, 1, 8, 511, 512, 520, 1000, -1])
def test_a_truncated_file_is_found(tmp_path, sealed, length):
    path = tmp_path / "a.h5"
    write(path, sealed=sealed)
    path.write_bytes(path.read_bytes()[:length])
    with (
        pytest.raises(PlanError, match=r"a\.h5"),
        hdf5.open_file(path, sealed=sealed, error=PlanError) as file,
    ):
        hdf5.read_array(file, "x", kinds="f", error=PlanError)


def test_without_verify_only_the_digest_is_skipped(tmp_path):
    path = tmp_path / "a.h5"
    write(path)
    good = bytearray(path.read_bytes())
    good[300] ^= 1
    path.write_bytes(good)
    with hdf5.open_file(path, verify=False, error=PlanError) as file:
        assert file.attrs["format"] == "test"
    path.write_bytes(b"x" + bytes(good[1:]))
    with pytest.raises(PlanError, match="first bytes"), hdf5.open_file(path, verify=False, error=PlanError):
        pass


def test_another_file_is_refused(tmp_path):
    write(tmp_path / "open.h5", sealed=False)
    with (
        pytest.raises(PlanError, match="without a seal"),
        hdf5.open_file(tmp_path / "open.h5", error=PlanError),
    ):
        pass
    write(tmp_path / "sealed.h5")
    with pytest.raises(PlanError, match="has one: read it as a sealed"):
        with hdf5.open_file(tmp_path / "sealed.h5", sealed=False, error=PlanError):
            pass
    with pytest.raises(PlanError, match="does not exist"), hdf5.open_file(tmp_path / "no", error=PlanError):
        pass
    with pytest.raises(PlanError, match="Is a directory"), hdf5.open_file(tmp_path, error=PlanError):
        pass


def test_failures_inside_are_the_stated_error(tmp_path):
    write(tmp_path / "a.h5")
    for failure in (KeyError("no group"), OSError("bad chunk"), RuntimeError("bad heap")):
        with pytest.raises(PlanError, match=f"a.h5 cannot be read .{failure.args[0]}"):
            with hdf5.open_file(tmp_path / "a.h5", error=PlanError):
                raise failure


def test_arrays_are_checked(tmp_path):
    path = tmp_path / "a.h5"
    with hdf5.create(path, sealed=False) as file:
        hdf5.write_array(file, "x", np.arange(4.0))
        file.create_group("g")
        file.create_dataset("hole", (100,), "f4", chunks=(10,))
        file.create_dataset("text", data="words")
    cases = {
        "none": "is missing",
        "g": "is a group",
        "text": "must hold real numbers",
        "hole": "lacks a part",
    }
    with h5py.File(path) as file:
        for name, message in cases.items():
            with pytest.raises(PlanError, match=message):
                hdf5.read_array(file, name, kinds="f", error=PlanError)
        with pytest.raises(PlanError, match="must have 2 axes"):
            hdf5.read_array(file, "x", kinds="f", ndim=2, error=PlanError)
        with pytest.raises(PlanError, match="signed integers"):
            hdf5.read_array(file, "x", kinds="i", error=PlanError)


def test_attributes_are_checked(tmp_path):
    values = {"i": 3, "f": 0.5, "s": "long " * 20_000, "b": True, "shape": (3, 4)}
    types = {"i": int, "f": float, "s": str, "b": bool, "shape": tuple}
    with hdf5.create(tmp_path / "a.h5") as file:
        file.attrs.update(values)
    with hdf5.open_file(tmp_path / "a.h5", error=PlanError) as file:
        for name, value in values.items():
            read = hdf5.attribute(file, name, types[name], PlanError)
            assert read == value
            assert type(read) is types[name]
        for name, wrong in {"i": str, "f": int, "s": int, "b": int, "shape": str}.items():
            with pytest.raises(PlanError, match=f"attribute '{name}'"):
                hdf5.attribute(file, name, wrong, PlanError)
        with pytest.raises(PlanError, match="'none' of / is missing"):
            hdf5.attribute(file, "none", int, PlanError)


def test_what_is_no_path_and_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, message in (
        (tmp_path / "pipe", "pipe is no regular file"),
        (0, "0 is no path"),
        (None, "None is"),
    ):
        with pytest.raises(PlanError, match=message):
            Plan.load(path)


def test_an_array_that_does_not_fit_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5, "LARGE", 100)
    monkeypatch.setattr(hdf5, "free_host_memory", lambda: 1000)
    with hdf5.create(tmp_path / "a.h5") as file:
        hdf5.write_array(file, "small", np.zeros(100))
        hdf5.write_array(file, "large", np.zeros(200))
    with hdf5.open_file(tmp_path / "a.h5") as file:
        hdf5.read_array(file, "small", kinds="f", error=BppsaError)
        with pytest.raises(BppsaError, match=r"a.h5: /large takes 1600 bytes, 1000 are free"):
            hdf5.read_array(file, "large", kinds="f", error=BppsaError)
