"""Ctrl-C at any point of bppsa-plan, and of writing a file: code 130, one line, no traceback, no file."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from bppsa_cupy.system import files, interrupts, temporary
from bppsa_cupy.system.hdf5 import create, write_array

#: Where the signal comes: just before these are called for the first time.
POINTS = [
    "bppsa_cupy.tools.plans.commands.make_network",
    "bppsa_cupy.plan.sizes.counting.sweep",
    "bppsa_cupy.plan.chain_plan.multiply",
    "bppsa_cupy.plan.file.products._write_pattern",
    "bppsa_cupy.plan.file.plan_file.write_schedule",
    "bppsa_cupy.system.hdf5._Steady.write",  # inside of a callback of the HDF5 library
    "bppsa_cupy.system.hdf5._seal",
    "bppsa_cupy.system.files._sync",
]

SCRIPT = """
import importlib, os, signal, sys, tempfile
import bppsa_cupy.tools.plan as tool
from bppsa_cupy.tools import cli

def find(path):
    for stop in range(path.count("."), 0, -1):
        try:
            owner = importlib.import_module(".".join(path.split(".")[:stop]))
        except ImportError:
            continue
        *between, last = path.split(".")[stop:]
        for name in between:
            owner = getattr(owner, name)
        return owner, last

def interrupted(point, times, folder):
    owner, name = find(point)
    original = getattr(owner, name)
    def before(*arguments, **options):
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
        return original(*arguments, **options)
    setattr(owner, name, before)
    return tool.main(["build", "lenet5", "-o", folder + "/p.h5", "--device", "host", "--batch-size", "2"])

for position, point in enumerate(sys.argv[2:]):
    folder = os.path.join(sys.argv[1], point)
    os.mkdir(folder)
    sys.stdout.flush()
    if os.fork() == 0:
        os.dup2(os.open(folder + ".stderr", os.O_CREAT | os.O_WRONLY), 2)
        sys.exit(interrupted(point, 1 + position % 2, folder))
    print(point, os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.long
def test_a_build_that_is_interrupted_leaves_nothing(tmp_path):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), *POINTS]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    codes = dict(line.split() for line in done.stdout.splitlines() if line.startswith("bppsa_cupy."))
    assert codes == dict.fromkeys(POINTS, "130"), done
    for point in POINTS:
        assert (tmp_path / f"{point}.stderr").read_text(encoding="utf-8") == (
            "error: interrupted; nothing half written is left\n"
        )
        assert list((tmp_path / point).iterdir()) == []


def test_a_signal_after_the_last_array_leaves_no_file(tmp_path):
    with pytest.raises(KeyboardInterrupt), create(tmp_path / "x.h5") as file:
        write_array(file, "a", [1, 2])
        os.kill(os.getpid(), signal.SIGINT)
    assert list(tmp_path.iterdir()) == []


# ---- a file of text, step by step ----

STEPS_OF = {module.__file__ for module in (contextlib, files, interrupts, temporary)}


def write_with_a_signal(path, moment):
    """Write a text with Ctrl-C at a bytecode by its number, of those that write the file; whether it was
    reached."""
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
    with contextlib.suppress(KeyboardInterrupt), interrupts.one_interrupt():
        sys.settrace(trace)
        try:
            files.write_text(path, "whole")
        finally:
            sys.settrace(before)
    return passed >= moment


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_at_any_moment_leaves_a_whole_file_or_none(tmp_path, monkeypatch):
    """Descriptors that were opened at that very moment are closed with their last name."""
    monkeypatch.setattr(files.os, "fsync", lambda descriptor: None)
    path, moment, outcomes = tmp_path / "a.txt", 1, set()
    while write_with_a_signal(path, moment):
        assert os.listdir(tmp_path) in ([], ["a.txt"]), moment
        outcomes.add(path.exists())
        assert not path.exists() or path.read_text() == "whole"
        path.unlink(missing_ok=True)
        moment += 1
    assert moment > 200 and outcomes == {False, True}
