"""What killed writers left is removed by the next writer of that name, and nothing else is."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from threading import Barrier, Thread

import numpy as np
import pytest

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.system import hdf5, temporary
from bppsa_cupy.system.files import whole_file, write_text

#: Writes half of a file, says so, and waits for what comes.
WRITER = """
import sys
from pathlib import Path
from bppsa_cupy.system.files import whole_file
with whole_file(sys.argv[1]) as file:
    file.write_text("half")
    print(file.name, flush=True)
    sys.stdin.read()
"""


@contextmanager
def writer(path):
    """A process that is writing `path`, and the name of its temporary file."""
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process, process.stdout.readline().strip()


def left(folder, name, boot=None, seconds=0.0):
    """A temporary file of `name` that nobody writes; its last write was `seconds` before now."""
    file = folder / f".{name}.{boot or temporary._boot()}.0123abcd.part"
    file.write_text("half", encoding="utf-8")
    then = file.stat().st_mtime - seconds
    os.utime(file, (then, then))
    return file


def names(folder):
    return sorted(os.listdir(folder))


def test_what_a_killed_writer_left_goes_with_the_next_one(tmp_path):
    with writer(tmp_path / "a.h5") as (process, name):
        process.send_signal(signal.SIGKILL)
    assert names(tmp_path) == [name]
    write_text(tmp_path / "b.h5", "another")
    assert names(tmp_path) == [name, "b.h5"]
    with hdf5.create(tmp_path / "a.h5") as file:
        hdf5.write_array(file, "x", np.arange(3))
    assert names(tmp_path) == ["a.h5", "b.h5"]


def test_a_writer_that_lives_keeps_its_file(tmp_path):
    path = tmp_path / "a.txt"
    with writer(path) as (process, name):
        os.utime(tmp_path / name, (0, 0))  # however long ago its last write was
        write_text(path, "second")
        assert names(tmp_path) == [name, "a.txt"]
        process.communicate("")
        assert process.returncode == 0
    assert path.read_text(encoding="utf-8") == "half"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(("seconds", "stays"), [(0, True), (86_000, True), (87_000, False)])
def test_a_file_of_another_machine_goes_a_day_after_its_last_write(tmp_path, seconds, stays):
    file = left(tmp_path, "a.txt", "00000000", seconds)
    write_text(tmp_path / "a.txt", "mine")
    assert file.exists() is stays


def test_what_only_looks_alike_stays(tmp_path):
    boot = temporary._boot()
    others = [
        *(f".ab.txt.{boot}.0123abcd.part", f".a.txt.{boot}.0123abcd.part.h5", f"a.txt.{boot}.0123abcd.part"),
        *(f".axtxt.{boot}.0123abcd.part", ".a.txt.part", ".a.txt.0123abcd.part", f".a.txt.{boot}.mine.part"),
    ]
    for name in others:
        (tmp_path / name).write_text("", encoding="utf-8")
    (tmp_path / f".a.txt.{boot}.0123abcd.part").mkdir()
    (tmp_path / f".a.txt.{boot}.01234567.part").symlink_to(tmp_path / others[0])
    before = names(tmp_path)
    write_text(tmp_path / "a.txt", "mine")
    assert names(tmp_path) == sorted([*before, "a.txt"])


@pytest.mark.parametrize("name", ["a [*]?.(h5)", "ä" * 120, "字" * 80, "x" * 255])
def test_any_name_of_a_file(tmp_path, name):
    path = tmp_path / name
    with pytest.raises(RuntimeError), whole_file(path) as file:
        abandoned = file.read_bytes()
        raise RuntimeError
    assert abandoned == b"" and names(tmp_path) == []
    file = tmp_path / f"{temporary._stem(path)}{temporary._boot()}.0123abcd.part"
    file.write_text("half", encoding="utf-8")
    write_text(path, "whole")
    assert names(tmp_path) == [name]


def test_writers_of_one_name_never_disturb_each_other(tmp_path):
    path, start, failed = tmp_path / "a.txt", Barrier(4), []

    def write(digit):
        start.wait()
        for _ in range(50):
            try:
                write_text(path, digit * 1000)
                assert len(set(path.read_text(encoding="utf-8"))) == 1
            except (BppsaError, AssertionError) as error:
                failed.append(error)

    threads = [Thread(target=write, args=(digit,)) for digit in "1234"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert names(tmp_path) == ["a.txt"]
