"""How this process was started, by the environment, and how MPI begins. Imports nothing of the package."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType

#: The number of processes, by launcher: MPICH's, Intel's and MVAPICH's mpiexec; Open MPI's; Slurm's srun.
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
#: A process's own number, likewise.
RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID")
#: The variable that holds for how many seconds MPI may wait for the others to begin, and its default.
SECONDS, DEFAULT = "BPPSA_MPI_SECONDS", 60.0


def launched_rank() -> int:
    """Which of them this one is, from 0 on; 0 without mpiexec or srun. Needs no MPI."""
    return max(_integers(RANKS), default=0)


def launched_size() -> int:
    """How many processes mpiexec, or srun, started this one with; 1 without it. Needs no MPI."""
    return max(_integers(SIZES), default=1)


def _integers(names: tuple[str, ...]) -> list[int]:
    """The integers that these variables of the environment hold."""
    return [int(text) for text in map(os.environ.get, names) if text and text.isdecimal()]


def begin() -> ModuleType:
    """mpi4py's MPI, which begins as it is imported. Until then Ctrl-C ends the process at once, and where the
    others do not come within `BPPSA_MPI_SECONDS` (default 60) it says so and ends.

    Raises ImportError or RuntimeError where mpi4py finds no MPI, and RuntimeError where MPI has joined
    another number of processes than were started.
    """
    if "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        return MPI
    with _interrupted_at_once(), _watched():
        from mpi4py import MPI
    started = _integers(SIZES)
    if started and MPI.COMM_WORLD.size not in started:
        raise RuntimeError(
            f"{launched_size()} processes were started and MPI joins {MPI.COMM_WORLD.size} of them: the "
            "launcher is of another MPI than mpi4py; take the mpiexec of that MPI, or srun --mpi=pmi2 or "
            "--mpi=pmix"
        )
    return MPI


@contextmanager
def _interrupted_at_once() -> Iterator[None]:
    """Python's own handler would run when MPI has begun, which may be never."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    except ValueError:  # another thread than the main one
        yield
        return
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, before)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _watched() -> Iterator[None]:
    """End the process where the block takes too long: by a child, as MPI may wait with Python's lock held."""
    if launched_size() == 1 or not hasattr(os, "fork"):
        yield
        return
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _watch(parent, reading, writing)
    os.close(reading)
    try:
        yield
    finally:
        os.close(writing)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


def _watch(parent: int, reading: int, writing: int) -> None:
    """What the child does: nothing but wait until the parent's end of the pipe is closed."""
    import select

    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.close(writing)
        for descriptor in (0, 1):
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        text = os.environ.get(SECONDS, "")
        seconds = float(text) if text.replace(".", "", 1).isdecimal() else DEFAULT
        if not select.select([reading], [], [], seconds)[0]:
            words = (
                f"error: rank {launched_rank()}: MPI has not begun within {seconds:g} s: another rank has "
                f"ended before, or starts later ({SECONDS} sets the seconds)\n"
            )
            os.write(2, words.encode())
            time.sleep(0.2)
            os.kill(parent, signal.SIGKILL)
    finally:
        os._exit(0)
