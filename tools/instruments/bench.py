"""What kernels' machine code takes, and what a step launches, on paper; options are those of bppsa-bench."""

from __future__ import annotations

import sys

from bppsa_cupy.tools import bench
from bppsa_cupy.tools.instruments.launches import command as launches
from bppsa_cupy.tools.instruments.machine_code import command as machine_code

PROGRAM = "python -m bppsa_cupy.tools.instruments.bench"
INSTRUMENTS = {"launches": launches, "machine-code": machine_code}


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return bench.main(argv, INSTRUMENTS, PROGRAM)


if __name__ == "__main__":
    sys.exit(main())
