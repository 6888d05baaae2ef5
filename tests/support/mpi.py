"""Starts programs of several ranks by the mpiexec that lies beside this Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MPIEXEC = Path(sys.executable).with_name("mpiexec")
FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Ended:
    """How a program ended: exit code, output, and seconds from `since`, or the start, to the end."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float


def play(cases: dict[str, Any]) -> None:
    """What a rank does: each function called `case_…`, or those that the command line names; rank 0 tells of
    each when all ranks have run it."""
    from bppsa_cupy.distributed import Group, guard

    with guard():
        group = Group(device="host")
        for name in sys.argv[1:] or [name for name in cases if name.startswith("case_")]:
            cases[name](group)
            if group.rank == 0:
                print(name, flush=True)
        group.close()


def start(size: int, *arguments: object) -> subprocess.Popen[str]:
    """Start Python on `arguments` (a file of the tests, or "-c" and a text) as `size` ranks."""
    assert MPIEXEC.exists(), f"{MPIEXEC} is missing: the extra test brings it"
    first, *others = map(str, arguments)
    program = [first if first.startswith("-") else str(FOLDER / first), *others]  # an absolute path stays
    environment = os.environ | {"PYTHONPATH": str(FOLDER), "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONUNBUFFERED", None)  # with it a line is two writes, between which others print
    return subprocess.Popen(
        [str(MPIEXEC), "-n", str(size), sys.executable, "-W", "error", *program],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], *, limit: float = 120, since: float | None = None) -> Ended:
    """Wait for the end; after `limit` seconds everything that was started is killed and the test fails."""
    since = time.monotonic() if since is None else since
    try:
        stdout, stderr = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        raise AssertionError(f"no end within {limit} s: {stdout}{stderr}") from None
    return Ended(process.returncode, stdout, stderr, time.monotonic() - since)


def run_ranks(size: int, *arguments: object, limit: float = 120) -> Ended:
    """Start `size` ranks and wait for their end, which is to be a good one."""
    ended = finish(start(size, *arguments), limit=limit)
    assert ended.returncode == 0, f"exit code {ended.returncode}\n{ended.stdout}{ended.stderr}"
    return ended
