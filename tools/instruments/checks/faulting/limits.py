"""Too little disk, no permission, too little memory: one line says so, and older files are as they were."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import numpy as np

from faulting.commands import Command
from faulting.running import Ended, Peace, Run, fresh, left_hidden
from faulting.stops import OLD, half_written


def full_disk(command: Command, peace: Peace, furnished: Path, folder: Path, rng: np.random.Generator) -> str:
    """No file may be longer than a random size, below that of the largest output: "refused" or "wrong: …"."""
    size = int(rng.integers(0, max(map(len, peace.outputs.values()))))
    return _limited(command, peace, furnished, folder, resource.RLIMIT_FSIZE, size, "File too large")


def no_permission(
    command: Command, peace: Peace, furnished: Path, folder: Path, rng: np.random.Generator
) -> str:
    """The outputs are to lie in a folder that takes no file; the superuser may write anywhere else."""
    fresh(furnished, folder)
    place = Path("/proc/self") if os.geteuid() == 0 else folder / "closed"
    if place.name == "closed":
        place.mkdir(mode=0o500)
    line = [str(place / part) if part in command.outputs else part for part in command.line]
    return _refused(Run(command, folder, line).wait(), str(place))


def little_memory(
    command: Command, peace: Peace, furnished: Path, folder: Path, rng: np.random.Generator
) -> str:
    """The address space may grow by a random size, from 1 KiB to 1 GiB: "done", "refused", "wrong: …", or
    "explained": LLVM and BLAS have no way to tell that memory is missing but to end the process, by SIGABRT
    or SIGSEGV, and every file is then whole or as it was."""
    more = int(2 ** rng.uniform(10, 30))

    def before() -> None:
        with open("/proc/self/statm", encoding="ascii") as pages:
            taken = int(pages.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + more,) * 2)

    fresh(furnished, folder)
    ended = Run(command, folder, command.line, before).wait()
    if ended.code == 0:
        return _same(peace, folder)
    fault = _left(command, peace, folder, "")
    if not fault and ended.code in (-signal.SIGABRT, -signal.SIGSEGV):
        return "explained"
    return fault or _refused(ended, "")


def _limited(
    command: Command, peace: Peace, furnished: Path, folder: Path, kind: int, size: int, reason: str
) -> str:
    fresh(furnished, folder)
    for name in peace.outputs:
        (folder / name).write_bytes(OLD)
    ended = Run(command, folder, command.line, lambda: resource.setrlimit(kind, (size, size))).wait()
    if ended.code == 0:
        return "wrong: it ended with 0"
    return _left(command, peace, folder, "old") or _refused(ended, reason)


def _left(command: Command, peace: Peace, folder: Path, old: str) -> str:
    """What is wrong with what a run left that failed, "" for nothing."""
    if hidden := left_hidden(peace, folder):
        return f"wrong: it left {hidden}"
    if old:
        gone = [name for name in command.outputs if not (folder / name).exists()]
        if gone:
            return f"wrong: {gone} that an older run left are gone"
    fault = half_written(command, peace, folder, bool(old))
    return f"wrong: {fault}" if fault else ""


def _refused(ended: Ended, reason: str) -> str:
    lines = ended.said.splitlines()
    if ended.code != 1 or len(lines) != 1 or not lines[0].startswith("error: ") or reason not in lines[0]:
        return f"wrong: it ended with {ended.code} and said {ended.said[-1500:]!r}"
    return "refused"


def _same(peace: Peace, folder: Path) -> str:
    for name, content in peace.outputs.items():
        if (folder / name).read_bytes() != content:
            return f"wrong: {name} has other bits"
    return "done"
