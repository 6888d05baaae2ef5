"""Memory of the host that this process can still take."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from bppsa_cupy.errors import DeviceError

#: Allocations from this number of bytes on are compared with the free memory.
LARGE = 1 << 26


def check_host_memory(needed: int, owner: str) -> None:
    """Raise DeviceError if `owner` needs more bytes than are free; small amounts are not compared.

    A host may hand out memory that it does not have, and end the process once it is used.
    """
    if needed > LARGE and needed > (free := free_host_memory()):
        raise DeviceError(
            f"host: {owner} needs {needed} bytes, but only {free} are free: use fewer entries, or a machine "
            "with more memory"
        )


def free_host_memory(proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> int:
    """Bytes this process can still take: the least of what the machine has available, and what the memory
    limits of its control groups leave.

    The limits of control groups are read once per process.
    """
    available = re.search(rb"^MemAvailable: *(\d+)", _read(f"{proc}/meminfo"), re.MULTILINE)
    free = int(available[1]) * 1024 if available else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit, group in _group_limits(proc, groups):
        left = limit - int(_read(f"{group}/memory.current") or limit)
        if left < free:
            reclaimable = re.search(rb"^inactive_file (\d+)", _read(f"{group}/memory.stat"), re.MULTILINE)
            free = min(free, left + (int(reclaimable[1]) if reclaimable else 0))
    return max(0, free)


@cache
def _group_limits(proc: str, groups: str) -> list[tuple[int, Path]]:
    """Return limit and folder of each limited control group (version 2) of this process."""
    path = re.search(rb"^0::/(.*)", _read(f"{proc}/self/cgroup"), re.MULTILINE)
    # Inside a container the path may be the host's, and the mount the group of the container.
    innermost = Path(groups, path[1].decode() if path else "")
    limits = [(_read(f"{group}/memory.max").strip(), group) for group in (innermost, *innermost.parents)]
    return [(int(limit), group) for limit, group in limits if limit.isdigit()]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
