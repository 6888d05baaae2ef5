"""Passes over several ranks, and training through a pipeline on them, against one process of one of them."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.tools import cli
from bppsa_cupy.tools.benchmarks.harness import BenchmarkError, Row, thread_variables, timed_row

#: Networks whose batches are shared.
BATCH_CASES: list[dict[str, Any]] = [
    {"name": "lenet5 B=256", "model": "lenet5", "batch_size": 256},
    {"name": "resnet20 B=64", "model": "resnet20", "batch_size": 64},
    {"name": "GRU T=1000 B=32 H=128", "steps": 1000, "features": 16, "hidden": 128, "batch_size": 32},
]
QUICK_CASES: list[dict[str, Any]] = [
    {"name": "lenet5 B=4", "model": "lenet5", "batch_size": 4},
    {"name": "GRU T=5 B=2 H=3", "steps": 5, "features": 2, "hidden": 3, "batch_size": 2},
]
#: Steps and units of the RNNs whose steps are shared.
TIME_CASES = [(500, 20), (500, 64), (5000, 20), (5000, 64), (30000, 64), (30000, 20)]
#: Networks, batch sizes and batches of a sample of pipelines.
PIPELINE_CASES = (("lenet5", 64, 100), ("vgg16", 16, 20), ("resnet20", 32, 40))


def run_ranks(arguments: argparse.Namespace) -> Iterator[list[Row]]:
    """Passes over ranks of one thread each, over batches, layers and time."""
    if arguments.quick:
        arguments.model, arguments.batch_size, arguments.length = "lenet5", 2, 200
        arguments.hidden_size = 20
    steps, hidden = arguments.length, arguments.hidden_size
    times = dict.fromkeys((steps or T, hidden or H) for T, H in TIME_CASES)
    cases: dict[str, list[dict[str, Any]]] = {
        "batch": QUICK_CASES if arguments.quick else BATCH_CASES,
        "layers": [cli.taken(arguments, "model", "prune", "batch_size")],
        "time": [{"steps": T, "hidden": H, "batch_size": arguments.batch_size} for T, H in times],
    }
    for over in arguments.over:
        for case in cases[over]:
            yield measure_on_ranks(arguments, {"over": over, **case})


def run_pipelines(arguments: argparse.Namespace) -> Iterator[list[Row]]:
    """Training through a pipeline, of which each rank runs a stage."""
    cases: Any = PIPELINE_CASES
    if arguments.batch_size is not None and arguments.model is None:
        raise BppsaError("--batch-size requires --model")
    if arguments.model is not None:
        cases = [(arguments.model, arguments.batch_size or 32, arguments.batches or 20)]
    if arguments.quick:
        cases = [("lenet5", 4, 3)]
    for model, batch_size, batches in cases:
        case = {"model": model, "batch_size": batch_size, "batches": arguments.batches or batches}
        case |= cli.taken(arguments, "ppv", "pipelines", "micro_batches")
        yield measure_on_ranks(arguments, {"over": "pipeline", **case})


def measure_on_ranks(arguments: argparse.Namespace, options: dict[str, Any]) -> list[Row]:
    """The rows that `ranks_program` measures on ranks of one thread each. Raises BenchmarkError if it
    fails."""
    beside = Path(sys.executable).with_name("mpiexec")
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    if launcher is None:
        raise BenchmarkError("no mpiexec is beside this Python or on PATH: pip install mpich brings one")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "options.json"
        file.write_text(json.dumps({**options, "repeats": arguments.repeats}), encoding="utf-8")
        program = [sys.executable, "-m", "bppsa_cupy.tools.benchmarks.ranks_program", str(file)]
        result = subprocess.run(
            [launcher, "-n", str(arguments.rank_count), *program],
            env=os.environ | thread_variables(1),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        if result.returncode:
            raise BenchmarkError(f"the ranks failed: {result.stdout.strip().rpartition(chr(10))[2]}")
        rows = json.loads(file.with_suffix(".out").read_text(encoding="utf-8"))
    return [timed_row(**row) for row in rows]
