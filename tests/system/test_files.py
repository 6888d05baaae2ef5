"""Files are whole or absent after an error, Ctrl-C or a kill, and damage is found before anything is read."""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Barrier, Thread

import h5py
import numpy as np
import pytest

from bppsa_cupy.errors import BppsaError, PlanError
from bppsa_cupy.system import files, hdf5
from bppsa_cupy.system.files import write_text

# ---- HDF5 ----

ARRAYS = {
    "empty": np.zeros(0),
    "no rows": np.zeros((0, 3), np.int32),
    "no columns": np.zeros((3, 0), np.float32),
    "one": np.array([7], np.int64),
    "deep": np.arange(2 * 3 * 5 * 7, dtype=np.uint8).reshape(2, 3, 5, 7),
    "booleans": np.array([True, False, True]),
    "many chunks": np.arange(300_000, dtype=np.float64).reshape(3, 100_000),
}


def write(path):
    with hdf5.create(path) as file:
        file.attrs["format"] = "test"
        hdf5.write_array(file, "x", np.arange(10.0))


def read(path, **options):
    with hdf5.open_file(path, error=PlanError, **options) as file:
        return hdf5.read_array(file, "x", kinds="f", error=PlanError)


@pytest.mark.parametrize("compress", [True, False])
def test_arrays_are_read_as_written(tmp_path, compress):
    for name in "ab":
        with hdf5.create(tmp_path / name) as file:
            for key, array in ARRAYS.items():
                assert hdf5.write_array(file, key, array, compress=compress).fletcher32
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with hdf5.open_file(tmp_path / "a", error=PlanError) as file:
        for key, array in ARRAYS.items():
            result = hdf5.read_array(file, key, kinds="biuf", ndim=array.ndim, error=PlanError)
            assert result.dtype == array.dtype
            np.testing.assert_array_equal(result, array)


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


def test_paths_that_cannot_be_written(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "a.h5")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "a.h5").is_file()
    for path in ("/dev/full", tmp_path / "none" / "a.h5", tmp_path, "a\0b"):
        with pytest.raises(PlanError), hdf5.create(path, error=PlanError):
            pass


#: A full disk, played by the limit on a file's size; in a process of its own, which must end well.
FULL_DISK = """
import numpy as np, resource, signal, sys
from bppsa_cupy.system import hdf5
from bppsa_cupy.errors import PlanError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    with hdf5.create(sys.argv[1], error=PlanError) as file:
        for k in range(20):
            hdf5.write_array(file, f"x{k}", np.random.default_rng(k).random(20_000))
except PlanError as error:
    print(error)
"""


def test_a_full_disk_is_reported(tmp_path):
    path = tmp_path / "a.h5"
    write(path)
    before = path.read_bytes()
    command = [sys.executable, "-c", FULL_DISK, str(path)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{path} cannot be written (File too large)")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.h5"]


def write_version_1(path):
    """A file whose SHA-256 is in its first 512 bytes."""
    with h5py.File(path, "w", userblock_size=512) as file:
        hdf5.write_array(file, "x", np.arange(10.0))
    content = path.read_bytes()[512:]
    seal = f"bppsa-seal 1 sha256 {hashlib.sha256(content).hexdigest()}\n"
    path.write_bytes(seal.encode().ljust(512, b"\0") + content)


def test_other_readers_open_the_files(tmp_path):
    write(tmp_path / "a.h5")
    assert (tmp_path / "a.h5").read_bytes().startswith(b"\x89HDF\r\n\x1a\n")
    pyfive = pytest.importorskip("pyfive")
    with pyfive.File(tmp_path / "a.h5") as file:
        assert file.attrs["format"] == b"test" and file["x"][:].tolist() == list(range(10))


@pytest.mark.parametrize("make", [write, write_version_1])
def test_flipped_bits_and_truncation_are_found(tmp_path, make):
    path = tmp_path / "a.h5"
    make(path)
    good = path.read_bytes()
    assert read(path).tolist() == list(range(10))
    damaged = [good[:length] for length in (0, 1, 8, 511, 512, 520, 1000, -80, -1)]
    for position in np.random.default_rng(0).choice(len(good) * 8, 100, replace=False):
        bad = bytearray(good)
        bad[position // 8] ^= 1 << (position % 8)
        damaged.append(bytes(bad))
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(PlanError, match=r"a\.h5"):
            read(path)


def test_edited_files_of_every_format_are_refused_or_read():
    """`make stress` draws new cases."""
    program = Path(__file__).parents[1] / "stress" / "files.py"
    command = [sys.executable, str(program), "300", "--cases", "400", "--seed", "0"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=600)
    assert done.returncode == 0 and "400 tried, 0 wrong" in done.stdout, done.stdout + done.stderr


def test_files_that_are_refused(tmp_path):
    write(tmp_path / "sealed")
    with h5py.File(tmp_path / "open", "w") as file:
        file["x"] = np.arange(3.0)
    assert read(tmp_path / "open", sealed=False).tolist() == [0, 1, 2]
    os.mkfifo(tmp_path / "pipe")
    refused = [(tmp_path / "open", True), (tmp_path / "sealed", False), (tmp_path / "none", True)]
    for path, sealed in [*refused, (tmp_path, True), (tmp_path / "pipe", True), (0, True), (None, True)]:
        with pytest.raises(PlanError):
            read(path, sealed=sealed)
    for failure in (KeyError("no group"), OSError("bad chunk"), RuntimeError("bad heap")):
        with pytest.raises(PlanError, match=f"sealed cannot be read .{failure.args[0]}"):
            with hdf5.open_file(tmp_path / "sealed", error=PlanError):
                raise failure


# ---- several writers ----


def names(folder):
    return sorted(os.listdir(folder))


def test_writers_of_one_name_never_disturb_each_other(tmp_path):
    path, start, failed = tmp_path / "a.txt", Barrier(4), []

    def write_often(digit):
        start.wait()
        for _ in range(50):
            try:
                write_text(path, digit * 1000)
                assert len(set(path.read_text(encoding="utf-8"))) == 1
            except (BppsaError, AssertionError) as error:
                failed.append(error)

    threads = [Thread(target=write_often, args=(digit,)) for digit in "1234"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert names(tmp_path) == ["a.txt"]


# ---- Ctrl-C ----


def test_a_signal_after_the_last_array_leaves_no_file(tmp_path):
    with pytest.raises(KeyboardInterrupt), hdf5.create(tmp_path / "x.h5") as file:
        hdf5.write_array(file, "a", [1, 2])
        os.kill(os.getpid(), signal.SIGINT)
    assert names(tmp_path) == []


STEPS_OF = {module.__file__ for module in (contextlib, files)}


def write_with_a_signal(path, moment):
    """Write a text with Ctrl-C at one of the bytecodes that write the file; whether it was reached."""
    passed = 0

    def trace(frame, event, argument):
        nonlocal passed
        if frame.f_code.co_filename not in STEPS_OF:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            passed += 1
            if passed == moment:
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    with contextlib.suppress(KeyboardInterrupt):
        sys.settrace(trace)
        try:
            write_text(path, "whole")
        finally:
            sys.settrace(before)
    return passed >= moment


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_at_any_moment_leaves_a_whole_file_or_none(tmp_path, monkeypatch):
    """Descriptors that were opened at that very moment are closed with their last name."""
    monkeypatch.setattr(files.os, "fsync", lambda descriptor: None)
    path, moment, outcomes = tmp_path / "a.txt", 1, set()
    while write_with_a_signal(path, moment):
        assert names(tmp_path) in ([], ["a.txt"]), moment
        outcomes.add(path.exists())
        assert not path.exists() or path.read_text() == "whole"
        path.unlink(missing_ok=True)
        moment += 1
    assert moment > 200 and outcomes == {False, True}
