"""Run as a program: read all of an HDF5 file, under limits of time and memory. `trial` starts it.

    python walk_hdf5.py SYS_PATH FILE SECONDS BYTES UNREAD

SYS_PATH and UNREAD are JSON lists: the folders to import h5py from, and groups of the root whose arrays are
described and not read. Errors that the library states are left to the reader, which meets them too. Ends
with 0, with TOO_LARGE where BYTES of memory do not do, or by a signal: the system's where it takes more than
SECONDS of processor time, and whatever ends it where the library breaks.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

#: The exit code where the memory does not do.
TOO_LARGE = 3
#: Bytes of a data set that are read at a time.
SLAB = 1 << 24
#: Groups inside of each other that are entered where the library cannot tell which they are.
DEEPEST = 8


def main() -> int:
    """Walk through the file that the command line names."""
    folders, path, seconds, size, unread = sys.argv[1:]
    sys.path[:] = json.loads(folders)
    import h5py

    _limit(int(seconds), int(size))
    try:
        with h5py.File(path, "r") as file:
            _walk(h5py, file, {f"/{name}" for name in json.loads(unread)})
    except Exception as error:
        _raise_no_memory(error)
    return 0


def _limit(seconds: int, size: int) -> None:
    """Take no more than so much processor time and memory from here on, and leave no core."""
    limits = {resource.RLIMIT_CPU: int(sum(os.times()[:2])) + 1 + seconds, resource.RLIMIT_CORE: 0}
    if sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as pages:
            limits[resource.RLIMIT_AS] = int(pages.read().split()[0]) * resource.getpagesize() + size
    for kind, value in limits.items():
        soft, hard = resource.getrlimit(kind)
        known = [limit for limit in (value, soft, hard) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(kind, (min(known), hard))


def _walk(h5py: Any, file: Any, unread: set[str]) -> None:
    """Every object that links lead to, once, with its attributes and values; a damaged one ends nothing."""
    waiting, seen = [(file, False)], set()
    while waiting:
        item, described = waiting.pop()
        info = _try(h5py.h5o.get_info, item.id)
        # What the library cannot tell from others goes by its path, to a depth that no circle passes.
        place = (info.fileno, info.addr) if info else item.name
        if place in seen or (not info and str(item.name).count("/") > DEEPEST):
            continue
        seen.add(place)
        _all(item.attrs)
        if isinstance(item, h5py.Group):
            members, described = _all(item), described or item.name in unread
            waiting += [(one, described) for one in members if isinstance(one, (h5py.Group, h5py.Dataset))]
        elif isinstance(item, h5py.Dataset):
            _try(_describe, item)
            if not described:
                _try(_read, item)


def _all(named: Any) -> list[Any]:
    """The members of a group, or the attributes of an object, up to the first name that cannot be told; None
    for one that cannot be read."""
    found: list[Any] = []
    _try(lambda: found.extend(_try(named.get, name) for name in named))
    return found


def _describe(array: Any) -> None:
    array.id.get_storage_size()
    if array.chunks is not None:
        array.id.get_num_chunks()


def _read(array: Any) -> None:
    """All values: of a large array some rows at a time, of another at once, as its reader takes them."""
    if not array.shape or array.size * max(1, array.dtype.itemsize) <= SLAB:
        array[()]
        return
    rows = max(1, SLAB * array.shape[0] // (array.size * max(1, array.dtype.itemsize)))
    for start in range(0, array.shape[0], rows):
        array[start : start + rows]


def _try(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception as error:
        _raise_no_memory(error)
        return None


def _raise_no_memory(error: Exception) -> None:
    """End where it says that memory is missing; the library has no error of its own for that."""
    if isinstance(error, MemoryError) or "alloc" in str(error).lower():
        sys.exit(TOO_LARGE)


if __name__ == "__main__":
    sys.exit(main())
