"""Two writers of one file, and a reader beside a writer: each finds a whole file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import bppsa_cupy as bp
from bppsa_cupy.plan import Plan
from faulting.commands import Command
from faulting.running import Peace, Run, fresh, listed

#: How often the writer beside a reader writes.
TIMES = 20


def two_writers(
    command: Command, peace: Peace, furnished: Path, folder: Path, rng: np.random.Generator
) -> str:
    """The same command twice at once in one folder: "done" or "wrong: …"."""
    fresh(furnished, folder)
    runs = [Run(command, folder, command.line) for _ in range(2)]
    for ended in [run.wait() for run in runs]:
        if ended.code != 0:
            return f"wrong: it ended with {ended.code}: {ended.said}"
    for name, content in peace.outputs.items():
        # A log has one writer: lines of two are mixed.
        if not name.endswith(".jsonl") and (folder / name).read_bytes() != content:
            return f"wrong: {name} has other bits"
    return "done" if listed(folder) == peace.names else f"wrong: left behind: {listed(folder)}"


def reader_beside_a_writer(folder: Path) -> str:
    """Plans are written over each other while they are read: "done" or "wrong: …"."""
    plans = []
    for width in (3, 40):
        net = bp.Sequential([bp.Linear(4, width), bp.Tanh(), bp.Linear(width, 2)], (4,), device="host")
        plans.append(net.plan(batch_size=2))
    path = folder / "shared.h5"
    plans[0].save(path)

    def write(_: list[str]) -> int:
        for k in range(TIMES):
            plans[k % 2].save(path)
        return 0

    def read(_: list[str]) -> int:
        for _ in range(2 * TIMES):
            if Plan.load(path).fingerprint not in [plan.fingerprint for plan in plans]:
                return 1
        return 0

    runs = [Run(Command("", main, (), ()), folder, ()) for main in (write, read, read)]
    for ended in [run.wait() for run in runs]:
        if ended.code != 0:
            return f"wrong: it ended with {ended.code}: {ended.said}"
    return "done" if listed(folder) == ("shared.h5",) else f"wrong: left behind: {listed(folder)}"
