"""Memory of the host that this process can still take."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from bppsa_cupy.errors import DeviceError

#: Bytes of address space that a thread takes with its stack and its first allocations.
THREAD_BYTES = 1 << 25
#: Bytes from which free memory is looked up before they are used.
LARGE = 1 << 26
#: Where Linux tells of processes and of control groups.
PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
#: Limit, use and, in memory.stat, reclaimable bytes of a group, by the version of control groups.
_FILES = {
    2: ("memory.max", "memory.current", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def check_thread_room() -> None:
    """Raise MemoryError where the limit of the address space leaves no room for a thread.

    Python waits for ever for a thread that starts and finds no memory to say so.
    """
    free = min(_of_address_space(), default=THREAD_BYTES)
    if free < THREAD_BYTES:
        raise MemoryError(f"a thread takes {THREAD_BYTES} bytes of address space, {free} are left")


def check_host_memory(needed: int, what: str) -> None:
    """Raise DeviceError if `what` takes more bytes than are free; small amounts are not looked up.

    A host may hand out memory that it does not have, and end the process once it is used.
    """
    if needed > LARGE and needed > (free := free_host_memory()):
        raise DeviceError(
            f"host: {what} takes {needed} bytes, {free} are free: use fewer entries, or a machine with more "
            "memory"
        )


def free_host_memory() -> int:
    """Bytes this process can still take: the least of what the machine has available, what the memory
    limits of its control groups leave, and what the limit of its address space leaves."""
    return max(0, min([_of_machine(), *_of_groups(), *_of_address_space()]))


def _of_machine() -> int:
    for line in _lines(PROC / "meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"):  # macOS has the second alone
        try:
            return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):
            continue
    return sys.maxsize


def _of_groups() -> Iterator[int]:
    """What each control group leaves that this process is in, from its own to the root."""
    for line in _lines(PROC / "self" / "cgroup"):
        _, controllers, path = line.rstrip("\n").split(":", 2)
        if controllers == "":
            version, root = 2, CGROUPS
        elif "memory" in controllers.split(","):
            version, root = 1, CGROUPS / "memory"
        else:
            continue
        # Inside a container the path may be the host's, and the mount the container's own group.
        group = root / path.lstrip("/")
        while group != root.parent:
            yield from _of_group(group, *_FILES[version])
            group = group.parent


def _of_group(group: Path, limit: str, used: str, reclaimable: str) -> Iterator[int]:
    try:
        most, taken = (int((group / name).read_text(encoding="utf-8")) for name in (limit, used))
    except (OSError, ValueError):  # no such group, or "max": no limit
        return
    cached = next(
        (int(s.split()[1]) for s in _lines(group / "memory.stat") if s.split()[0] == reclaimable), 0
    )
    yield most - taken + cached


def _of_address_space() -> Iterator[int]:
    """What `ulimit -v` leaves."""
    try:
        import resource
    except ImportError:
        return
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return
    for line in _lines(PROC / "self" / "statm"):
        yield most - int(line.split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
