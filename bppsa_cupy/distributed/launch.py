"""What the environment tells of how this process was started."""

from __future__ import annotations

import os

#: The number of processes, by launcher: MPICH's, Intel's and MVAPICH's mpiexec; Open MPI's; Slurm's srun.
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")


def launched_size() -> int:
    """How many processes mpiexec, or srun, started this one with; 1 without it. Needs no MPI."""
    return max((int(size) for size in map(os.environ.get, SIZES) if size and size.isdecimal()), default=1)
