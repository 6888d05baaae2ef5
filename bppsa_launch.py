"""Starts the commands: over ranks MPI begins before anything of the package is imported.

What ends a rank before MPI has begun leaves the others waiting for it. So a command that several processes
run begins MPI first, and ends all of them where one fails.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import runpy
import sys
import time
import traceback
from collections.abc import Callable


def train(argv: list[str] | None = None) -> int:
    """bppsa-train."""
    return _start("train", argv)


def bench(argv: list[str] | None = None) -> int:
    """bppsa-bench."""
    return _start("bench", argv)


def _start(tool: str, argv: list[str] | None) -> int:
    package = importlib.util.find_spec("bppsa_cupy")
    assert package is not None and package.origin is not None
    # Its text alone: the package is not imported by it.
    launch = runpy.run_path(os.path.join(os.path.dirname(package.origin), "distributed", "launch.py"))
    if launch["launched_size"]() == 1:
        return _main(tool)(argv)
    try:
        mpi = launch["begin"]()
    except (ImportError, RuntimeError) as error:
        what = "mpi4py cannot be imported" if isinstance(error, ImportError) else "MPI does not begin"
        print(f"error: rank {launch['launched_rank']()}: {what}: {error}", file=sys.stderr)
        return 1
    try:
        code = _main(tool)(argv)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.stderr.write(f"{traceback.format_exc()}error: rank {mpi.COMM_WORLD.rank} has failed\n")
        code = 1
    if code:
        sys.stderr.flush()
        time.sleep(0.2)  # what the launcher has not read yet is lost
        mpi.COMM_WORLD.Abort(code)
    return code


def _main(tool: str) -> Callable[[list[str] | None], int]:
    main: Callable[[list[str] | None], int] = importlib.import_module(f"bppsa_cupy.tools.{tool}").main
    return main
