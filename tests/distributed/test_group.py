"""Group: messages, collective calls and faults, on ranks that mpiexec starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import group_cases
import group_cuda_cases
import mpi
import pytest
from marks import some
from mpi import SOON

import bppsa_cupy as bp
from bppsa_cupy.distributed import Group, launched_size

CASES = [name for name in vars(group_cases) if name.startswith("case_")]
CUDA_CASES = [name for name in vars(group_cuda_cases) if name.startswith("case_")]
WAITING = 4


def start_faulty(fault: str, seed: int, size: int = WAITING) -> tuple[subprocess.Popen[str], dict, int]:
    """The program at the moment its ranks are ready; their process ids by rank, and the victim."""
    process = mpi.start(size, "group_faults.py", fault, seed)
    pids, victim = {}, 0
    for _ in range(size):
        word, rank, pid, victim = process.stdout.readline().split()
        assert word == "ready"
        pids[int(rank)] = int(pid)
    return process, pids, int(victim)


def ended(process: subprocess.Popen[str], pids: dict[int, int], since: float) -> mpi.Ended:
    end = mpi.finish(process, limit=30, since=since)
    assert end.seconds < SOON
    while any(runs(pid) for pid in pids.values()):
        assert time.monotonic() - since < SOON
        time.sleep(0.01)
    return end


def runs(pid: int) -> bool:
    """Whether the process has not ended; one that nobody has asked for its exit code has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("size", some(3, long=(1, 2, 5)))
def test_cases(size: int) -> None:
    assert mpi.run(size, "group_cases.py").stdout.split() == CASES


@pytest.mark.parametrize("size", some(3, long=(1,)))
@pytest.mark.parametrize("transport", some("gpu", long=("host", "nccl")))
def test_cases_on_cuda_arrays(transport: str, size: int) -> None:
    assert mpi.run(size, "group_cuda_cases.py", transport).stdout.split() == CUDA_CASES


@pytest.mark.long
def test_launches_in_a_row() -> None:
    program = (
        "import numpy; from bppsa_cupy.distributed import Group, guard\n"
        "with guard():\n"
        "    group = Group(device='host')\n"
        "    assert group.sum(numpy.ones(1)) == 2\n"
        "    group.close()"
    )
    for _ in range(8):
        mpi.run(2, "-c", program, limit=30)


@pytest.mark.long
def test_a_slow_rank_is_waited_for() -> None:
    """Rank 0 for rank 1, rank 1 in a call of all, for 8 s."""
    program = (
        "import numpy, time; from bppsa_cupy.distributed import Group, guard\n"
        "with guard():\n"
        "    group, told = Group(device='host'), numpy.zeros(1)\n"
        "    pair = group.split(min(group.rank, 1))\n"
        "    if group.rank == 2: time.sleep(8)\n"
        "    if group.rank == 0: group.receive(told, 1)\n"
        "    else: pair.barrier()\n"
        "    if group.rank == 1: group.send(told, 0)\n"
        "    assert group.any(group.rank == 1)"
    )
    assert mpi.run(3, "-c", program).seconds > 8


# ---- faults ----


@pytest.mark.parametrize("seed", some(0, long=(1,)))
def test_an_error_on_one_rank_ends_all(seed: int) -> None:
    process, pids, victim = start_faulty("raise", seed)
    end = ended(process, pids, time.monotonic())
    assert (end.returncode, end.stderr) == (1, f"error: rank {victim}: digits.npz: no such file\n")


@pytest.mark.long
def test_an_error_before_the_group_ends_all() -> None:
    end = mpi.finish(mpi.start(3, "group_faults.py", "before", 0), limit=30)
    assert (end.returncode, end.stderr) == (1, "error: rank 1: digits.npz: no such file\n")


@pytest.mark.long
def test_an_error_of_all_ranks_is_told_once() -> None:
    process, pids, _ = start_faulty("all", 0)
    end = ended(process, pids, time.monotonic())
    assert end.returncode == 1
    assert end.stderr in {f"error: rank {rank}: digits.npz: no such file\n" for rank in pids}


@pytest.mark.long
def test_a_bug_shows_its_traceback() -> None:
    process, pids, victim = start_faulty("bug", 3)
    end = ended(process, pids, time.monotonic())
    assert end.returncode == 1
    assert end.stderr.startswith("Traceback") and end.stderr.count("Traceback") == 1
    assert end.stderr.endswith(f"\nerror: rank {victim}: KeyError: 'width'\n")


@pytest.mark.long
def test_an_exit_code_is_that_of_all() -> None:
    process, pids, _ = start_faulty("exit", 4)
    end = ended(process, pids, time.monotonic())
    assert (end.returncode, end.stderr) == (7, "")


@pytest.mark.long
def test_ctrl_c_on_one_rank() -> None:
    process, pids, victim = start_faulty("interrupt", 5)
    end = ended(process, pids, time.monotonic())
    assert (end.returncode, end.stderr) == (
        130,
        f"error: rank {victim}: interrupted; nothing half written is left\n",
    )


@pytest.mark.parametrize("fault", some("work", long=("wait",)))
def test_ctrl_c_of_mpiexec(fault: str) -> None:
    process, pids, _ = start_faulty(fault, 6)
    time.sleep(0.3)
    since = time.monotonic()
    process.send_signal(signal.SIGINT)
    end = ended(process, pids, since)
    assert end.returncode == 130
    ours = [line for line in end.stderr.splitlines() if line.startswith("error: ")]
    assert len(ours) == 1 and ours[0].endswith(": interrupted; nothing half written is left")


@pytest.mark.parametrize("fault", some("work", long=("wait",)))
def test_a_killed_rank_ends_all(fault: str) -> None:
    process, pids, victim = start_faulty(fault, 7)
    time.sleep(0.3)
    since = time.monotonic()
    os.kill(pids[victim], signal.SIGKILL)
    assert ended(process, pids, since).returncode != 0


def test_an_exception_without_guard_ends_all_ranks_under_mpi4py(tmp_path: Path) -> None:
    """Rank 0 waits for a message of rank 1, which raises."""
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\nimport bppsa_cupy as bp\ngroup = bp.Group(device='host')\n"
        "assert group.rank == 0, 'rank 1 has no data'\ngroup.receive(np.empty(1), 1)\n",
        encoding="utf-8",
    )
    end = mpi.finish(mpi.start(2, "-m", "mpi4py", program), limit=60)
    assert end.returncode != 0 and end.seconds < 30
    assert "AssertionError: rank 1 has no data" in end.stderr


# ---- without ranks ----


@pytest.mark.parametrize("name", ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_the_number_of_processes_is_known_without_mpi(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched_size() == 1
    monkeypatch.setenv(name, "4")
    assert launched_size() == 4


def test_a_launcher_of_another_mpi_is_told_by_the_number_of_processes() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import bppsa_cupy as bp; bp.Group(device='host')"],
        env=os.environ | {"OMPI_COMM_WORLD_SIZE": "3"}, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert ended.returncode == 1
    assert "3 processes were started and MPI joins 1 of them: the launcher is of another MPI" in ended.stderr


def test_mpiexec_tells_the_number_of_processes() -> None:
    program = (
        "import sys; from bppsa_cupy.distributed import launched_size\n"
        "sys.exit(launched_size() != 2 or 'mpi4py' in sys.modules)"
    )
    mpi.run(2, "-c", program)


def test_without_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(bp.DistributedError, match=r"mpi4py cannot be imported .*: install mpi4py and an MPI"):
        Group()


def test_the_package_is_imported_without_mpi4py() -> None:
    program = "import sys, bppsa_cupy, bppsa_cupy.distributed; sys.exit('mpi4py' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
