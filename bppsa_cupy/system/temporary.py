"""Temporary files of writers, and those that killed writers left.

A temporary file of NAME is called .NAME.BOOT.TOKEN.part: BOOT says under which start of which machine it
was made, TOKEN is random. Its writer holds a shared lock (flock) on it, which the system frees when the
process ends in whatever way. The next writer of NAME removes those that lie beside it whose writer is gone:

- a file that is locked has a writer;
- one of this start of this machine that is not locked has none. Numbers of processes, which are used again
  and differ from container to container, are not asked;
- of any other, as on a folder that machines share, or one without locks, the lock may not be seen from here:
  it has no writer once its last write is `ABANDONED` seconds old by the folder's own clock.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from bppsa_cupy.system.interrupts import interrupts_deferred

#: Seconds after its last write from which a file that may have a writer elsewhere has none.
ABANDONED = 86_400
#: Bytes of a name that its temporary files keep, so that theirs is not too long for the folder.
_KEPT = 100


@contextmanager
def temporary_file(target: Path) -> Iterator[Path]:
    """An empty new file in the folder of `target`, to be renamed in the block: it goes at the block's end.
    Those that killed writers of `target` left there are removed. Raises OSError where the folder takes none.
    """
    made: tuple[Path, int] | None = None
    try:
        with interrupts_deferred():  # no Ctrl-C between the file's birth and the name for it
            made = _locked(target)
        path, descriptor = made
        _remove_abandoned(target, os.fstat(descriptor).st_mtime)
        yield path
    finally:
        if made:
            _discard(*made)


def _locked(target: Path) -> tuple[Path, int]:
    """A new file and its descriptor, which holds the lock where the folder has locks."""
    while True:
        path = target.with_name(f"{_stem(target)}{_boot()}.{secrets.token_hex(4)}.part")
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        # Shared, as a reader's: the HDF5 library locks what it reads, and may read the file once renamed.
        if _lock(descriptor, fcntl.LOCK_SH) is not False and os.fstat(descriptor).st_nlink:
            return path, descriptor
        _discard(path, descriptor)  # another writer took the file for abandoned before it had its lock


def _discard(path: Path, descriptor: int) -> None:
    with suppress(OSError):  # it was renamed, or removed
        path.unlink()
    os.close(descriptor)


def _remove_abandoned(target: Path, now: float) -> None:
    """`now` is the time of the folder's clock."""
    name = re.compile(re.escape(_stem(target)) + r"([0-9a-f]{8})\.[0-9a-f]{8}\.part")
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            found = name.fullmatch(entry.name)
            if found and entry.is_file(follow_symlinks=False):
                with suppress(OSError):
                    _remove_if_abandoned(entry.path, found[1] == _boot(), now)


def _remove_if_abandoned(path: str, ours: bool, now: float) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        locked = _lock(descriptor, fcntl.LOCK_EX)
        old = now - os.fstat(descriptor).st_mtime > ABANDONED
        if locked is not False and (old or (ours and locked)):
            os.unlink(path)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool | None:
    """Whether the lock was got; None where the folder has no locks."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _stem(target: Path) -> str:
    """What the names of all temporary files of `target` begin with."""
    return f".{os.fsencode(target.name)[:_KEPT].decode(errors='ignore')}."


@cache
def _boot() -> str:
    """This start of this machine, whose processes see each other's locks."""
    try:
        known = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        known = platform.node()
    return sha256(known.encode()).hexdigest()[:8]
