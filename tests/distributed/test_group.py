"""Group: messages, collective calls and faults, on ranks that mpiexec starts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import group_cases
import mpi
import pytest
from marks import some, some_rows

import bppsa_cupy as bp
from bppsa_cupy.distributed import Group, launched_size

CASES = [name for name in vars(group_cases) if name.startswith("case_")]
#: Seconds in which all ranks end after a fault, imports included.
SOON = 60


@pytest.mark.parametrize(
    "transport, size", some_rows(([], 3), long=[([], 1), ([], 5), (["host"], 3), (["nccl"], 3)]), ids=str
)
def test_cases(transport: list[str], size: int) -> None:
    """Arrays of the host, and of a stand-in for CuPy by either transport."""
    assert mpi.run_ranks(size, "group_cases.py", *transport).stdout.split() == CASES


@pytest.mark.parametrize(
    "fault, code, words",
    some_rows(
        ("raise", 1, r"error: rank 1: digits.npz: no such file\n"),
        long=[
            ("bug", 1, r"(?s)Traceback .*\nerror: rank 1: KeyError: 'width'\n"),
            ("exit", 7, ""),
            ("all", 1, r"error: rank 0: digits.npz: no such file\n"),
            ("before", 1, r"error: rank 1: digits.npz: no such file\n"),
            ("interrupt", 130, r"error: rank 1: interrupted.*\n"),
        ],
    ),
)
def test_a_fault_of_one_rank_ends_all_with_the_reason(fault: str, code: int, words: str) -> None:
    ended = mpi.finish(mpi.start(3, "group_faults.py", fault), limit=SOON)
    assert ended.returncode == code and re.fullmatch(words, ended.stderr), ended


@pytest.mark.parametrize("fault", some("plain bug", long=["plain exit"]))
def test_a_fault_ends_all_ranks_under_mpi4py(fault: str) -> None:
    program = mpi.FOLDER / "group_faults.py"
    ended = mpi.finish(mpi.start(2, "-m", "mpi4py", program, fault), limit=SOON)
    assert ended.returncode != 0
    assert ("KeyError: 'width'" in ended.stderr) == (fault == "plain bug")


def runs(pid: int) -> bool:
    """Whether the process has not ended; one that nobody has asked for its exit code has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", some(signal.SIGINT, long=(signal.SIGKILL,)))
def test_a_signal_ends_all(number: signal.Signals) -> None:
    """Ctrl-C for mpiexec, and a rank that is killed."""
    process = mpi.start(3, "group_faults.py", "none")
    victim, since = int(process.stdout.readline()), time.monotonic()
    if number == signal.SIGINT:
        process.send_signal(number)
    else:
        os.kill(victim, number)
    ended = mpi.finish(process, limit=SOON)
    assert ended.returncode != 0
    while runs(victim):
        assert time.monotonic() - since < SOON
        time.sleep(0.01)


# ---- without ranks ----


@pytest.mark.parametrize("name", ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_the_number_of_processes_is_known_without_mpi(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched_size() == 1
    monkeypatch.setenv(name, "4")
    assert launched_size() == 4


def test_a_launcher_of_another_mpi_is_refused() -> None:
    """The package alone is imported without mpi4py."""
    program = "import sys, bppsa_cupy.distributed as d; 'mpi4py' in sys.modules or d.Group(device='host')"
    ended = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"OMPI_COMM_WORLD_SIZE": "3"},
        capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert ended.returncode == 1
    assert "3 processes were started, but COMM_WORLD has 1" in ended.stderr


def test_without_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(bp.DistributedError, match="pip install mpi4py mpich"):
        Group()
