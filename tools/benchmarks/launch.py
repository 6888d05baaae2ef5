"""Programs of several ranks that a benchmark measures by."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bppsa_cupy.tools.benchmarks.harness import BenchmarkError, thread_variables


def measure_on_ranks(ranks: int, module: str, options: dict[str, Any]) -> dict[str, Any]:
    """What a program measures on ranks of one thread each.

    module   of tools.benchmarks: its `main` reads the options from the file that it is given, and rank 0
             writes what it measured beside it, as JSON, under the suffix ".out"

    Raises BenchmarkError where it fails.
    """
    beside = Path(sys.executable).with_name("mpiexec")
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    if launcher is None:
        raise BenchmarkError("no mpiexec is beside this Python or on PATH: pip install mpich brings one")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "options.json"
        file.write_text(json.dumps(options), encoding="utf-8")
        program = [sys.executable, "-m", f"bppsa_cupy.tools.benchmarks.{module}", str(file)]
        result = subprocess.run(
            [launcher, "-n", str(ranks), *program],
            env=os.environ | thread_variables(1),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        if result.returncode:
            raise BenchmarkError(f"the ranks failed: {result.stdout.strip().rpartition(chr(10))[2]}")
        found: dict[str, Any] = json.loads(file.with_suffix(".out").read_text(encoding="utf-8"))
    return found
