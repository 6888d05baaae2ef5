"""Memory of the host that this process can still take."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from bppsa_cupy.errors import DeviceError

#: Allocations from this number of bytes on are compared with the free memory.
LARGE = 1 << 26


def check_host_memory(needed: int, what: str) -> None:
    """Raise DeviceError if `what` takes more bytes than are free; small amounts are not compared.

    A host may hand out memory that it does not have, and end the process once it is used.
    """
    if needed > LARGE and needed > (free := free_host_memory()):
        raise DeviceError(
            f"host: {what} needs {needed} bytes, but only {free} are free: use fewer entries, or a machine "
            "with more memory"
        )


def free_host_memory(proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> int:
    """Bytes this process can still take: the least of what the machine has available, and what the memory
    limits of its control groups leave.

    The limits of control groups are read once per process.
    """
    free = _available(proc)
    for limit, group in _group_limits(proc, groups):
        left = limit - int(_read(f"{group}/memory.current") or limit)
        if left < free:
            reclaimable = _number_after(_read(f"{group}/memory.stat"), b"inactive_file ")
            free = min(free, left + (reclaimable or 0))
    return max(0, free)


def _available(proc: str) -> int:
    kibibytes = _number_after(_read(f"{proc}/meminfo"), b"MemAvailable:")
    if kibibytes is not None:
        return kibibytes * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # macOS


@cache
def _group_limits(proc: str, groups: str) -> list[tuple[int, Path]]:
    """Limit and folder of each limited control group (version 2) of this process, from its innermost group to
    the root."""
    limits, root = [], Path(groups)
    for line in _read(f"{proc}/self/cgroup").decode().splitlines():
        _, controllers, path = line.split(":", 2)
        # Inside a container the path may be the host's, and the mount the container's own group.
        group = root / path.lstrip("/")
        while not controllers and group != root.parent:
            limit = _read(f"{group}/memory.max").strip()
            if limit.isdigit():  # else no such group, or "max"
                limits.append((int(limit), group))
            group = group.parent
    return limits


def _number_after(content: bytes, name: bytes) -> int | None:
    """The number after a name at the start of a line."""
    start = 0 if content.startswith(name) else content.find(b"\n" + name) + 1
    return int(content[start + len(name) :].split(None, 1)[0]) if start or content.startswith(name) else None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
