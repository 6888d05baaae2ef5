"""How MPI begins, and how an error on one rank ends all ranks."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from bppsa_cupy.errors import DistributedError
from bppsa_cupy.system.complaint import STATED, complaint

#: The number of processes, by launcher: mpiexec of MPICH, Intel and MVAPICH; of Open MPI; srun of Slurm.
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
#: Seconds for which other ranks leave it to rank 0 to tell an error that all ranks share, and in which the
#: launcher reads what a rank has written: it loses the rest.
LEAD, READING = 0.5, 0.2


def _sizes() -> list[int]:
    return [int(text) for text in map(os.environ.get, SIZES) if text and text.isdecimal()]


def launched_size() -> int:
    """How many processes mpiexec or srun started this one with; 1 without them. Needs no MPI."""
    return max(_sizes(), default=1)


def import_mpi() -> ModuleType:
    """mpi4py's MPI, which begins as it is imported.

    Raises DistributedError where mpi4py or an MPI is missing, and where MPI has joined another number of
    processes than were started.
    """
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise DistributedError(f"ranks need mpi4py and an MPI ({error}): pip install mpi4py mpich") from error
    if _sizes() and MPI.COMM_WORLD.size not in _sizes():
        raise DistributedError(
            f"{launched_size()} processes were started, but COMM_WORLD has {MPI.COMM_WORLD.size}, because "
            "launcher and mpi4py use different MPI libraries: use the mpiexec of the MPI that mpi4py uses, "
            "or srun --mpi=pmi2 or --mpi=pmix"
        )
    return MPI


@contextmanager
def guard() -> Iterator[None]:
    """Let an exception in the block, on any rank, end all ranks with its exit code.

    The rank writes the error to stderr as `error: rank 2: …`. A traceback comes first, except for errors of
    this package, the operating system and memory. The code is 1, 130 after Ctrl-C, or that of a SystemExit.
    With one rank, exceptions propagate as usual.

    Use it in a command, or in a program that may call ``sys.exit`` on one rank. Without the guard, MPI would
    let the other ranks wait for this one. MPI begins when the block is entered.

    Raises
    ------
    DistributedError
        If mpi4py or an MPI is missing.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> from bppsa_cupy.distributed import guard
    >>> with guard():  # doctest: +SKIP
    ...     group = bp.Group(device="host")
    """
    mpi = import_mpi()
    try:
        yield
    except BaseException as error:
        trace, text, code = _described(error)
        if mpi.COMM_WORLD.size == 1 or not code or mpi.Is_finalized():
            raise
        rank = mpi.COMM_WORLD.rank
        if rank:
            time.sleep(LEAD)
        if text:
            sys.stderr.write(f"{trace}error: rank {rank}: {text}\n")
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(READING)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # MPI's own words on the end would hide ours
        mpi.COMM_WORLD.Abort(code)


def _described(error: BaseException) -> tuple[str, str, int]:
    """A traceback, what to say (nothing where it is said) and the exit code."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return "", "", error.code or 0
        return "", str(error.code), 1
    if isinstance(error, STATED):
        return ("", *complaint(error))
    trace = "".join(traceback.format_exception(error))
    return trace, f"{type(error).__name__}: {' '.join(str(error).split())}", 1
