"""What the environment tells of how this process was started."""

from __future__ import annotations

import os

#: The number of processes, by launcher: MPICH's, Intel's and MVAPICH's mpiexec; Open MPI's; Slurm's srun.
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
#: A process's own number, likewise.
RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID")


def launched_rank() -> int:
    """Which of them this one is, from 0 on; 0 without mpiexec or srun. Needs no MPI."""
    return _largest(RANKS, 0)


def launched_size() -> int:
    """How many processes mpiexec, or srun, started this one with; 1 without it. Needs no MPI."""
    return _largest(SIZES, 1)


def _largest(names: tuple[str, ...], default: int) -> int:
    """The largest integer that one of these variables of the environment holds."""
    return max(
        (int(text) for text in map(os.environ.get, names) if text and text.isdecimal()), default=default
    )
