"""Files that are written whole or not at all.

A temporary file of NAME is called .NAME.BOOT.TOKEN.part: BOOT is a digest of this start of this machine,
TOKEN is random. Its writer holds a shared lock (flock) on it, which the system frees when the process ends.
The next writer of NAME removes those of this BOOT that are not locked, and any whose last write is
`ABANDONED` seconds old: locks of other machines may not be seen from here.
"""

from __future__ import annotations

import errno
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

from bppsa_cupy.errors import BppsaError, reason_of
from bppsa_cupy.system.interrupts import interrupts_deferred

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
#: Seconds after its last write from which on a temporary file of another machine has no writer.
ABANDONED = 86_400


@contextmanager
def whole_file(path: str | os.PathLike[str], *, error: type[BppsaError] = BppsaError) -> Iterator[Path]:
    """An empty temporary file in the folder of `path`, for the block to write to.

    When the block ends without an exception, that file is flushed to the disk and renamed over `path`; a
    link is followed. After any exception it is gone, and an older file at `path` is as it was. Temporary
    files of killed writers of `path` are removed.
    Raises `error` where the file cannot be written (no space, no such folder, no permission).
    """
    target = _target(path, error)
    try:
        with _temporary_file(target) as temporary:
            yield temporary
            _sync(temporary)
            os.replace(temporary, target)
        _sync(target.parent)
    except OSError as cause:
        raise error(write_failure(path, cause)) from cause


def write_text(path: str | os.PathLike[str], text: str, *, error: type[BppsaError] = BppsaError) -> None:
    """Write `text`, in UTF-8, to a file that replaces `path` when it is whole. Raises `error`."""
    with whole_file(path, error=error) as temporary:
        temporary.write_text(text, encoding="utf-8")


def check_writable(path: str | os.PathLike[str], *, error: type[BppsaError] = BppsaError) -> None:
    """Raise `error` where `path` is in no folder that can be written, or is no regular file."""
    folder = _target(path, error).parent
    if not folder.is_dir():
        raise error(write_failure(path, OSError(errno.ENOENT, "")))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise error(write_failure(path, OSError(errno.EACCES, "")))


def write_failure(path: str | os.PathLike[str], cause: OSError) -> str:
    """The error message for a `path` that could not be written."""
    reason = os.strerror(cause.errno) if cause.errno else reason_of(cause)
    if cause.errno in _NO_SPACE:
        return f"{path} cannot be written ({reason}): free some space, or give a path on another disk"
    return f"{path} cannot be written ({reason}): give a path in a folder that exists and can be written"


def _target(path: str | os.PathLike[str], error: type[BppsaError]) -> Path:
    try:
        target = Path(os.path.realpath(path))
        is_other = target.exists() and not target.is_file()
    except (TypeError, ValueError) as cause:  # no text, or one that holds a null character
        raise error(f"{path!r} is no path ({cause}): give the name of a file") from cause
    except OSError as cause:
        raise error(write_failure(path, cause)) from cause
    if is_other:
        raise error(f"{path} cannot be written: it exists and is no regular file: give another path")
    return target


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---- temporary files ----


@contextmanager
def _temporary_file(target: Path) -> Iterator[Path]:
    """An empty locked file beside `target`, to be renamed in the block. Raises OSError."""
    # At most 100 bytes of the name, so that the temporary name is not too long for the folder.
    stem = f".{os.fsencode(target.name)[:100].decode(errors='ignore')}."
    made: tuple[Path, int] | None = None
    try:
        with interrupts_deferred():  # no Ctrl-C between the file's creation and the assignment
            while made is None:
                path = target.with_name(f"{stem}{_boot()}.{secrets.token_hex(4)}.part")
                made = path, os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
                # Shared: the HDF5 library locks what it reads, and may read the file once it is renamed.
                if _lock(made[1], fcntl.LOCK_SH) is False or not os.fstat(made[1]).st_nlink:
                    _discard(*made)  # another writer removed the file before it was locked
                    made = None
        _remove_abandoned(target.parent, stem, os.fstat(made[1]).st_mtime)
        yield made[0]
    finally:
        if made:
            _discard(*made)


def _discard(path: Path, descriptor: int) -> None:
    with suppress(OSError):  # it was renamed, or removed
        path.unlink()
    os.close(descriptor)


def _remove_abandoned(folder: Path, stem: str, now: float) -> None:
    """Remove the temporary files of killed writers; `now` is the time of the folder's clock."""
    name = re.compile(re.escape(stem) + r"([0-9a-f]{8})\.[0-9a-f]{8}\.part")
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found = name.fullmatch(entry.name)
            if not found or not entry.is_file(follow_symlinks=False):
                continue
            with suppress(OSError):
                descriptor = os.open(entry.path, os.O_RDWR | os.O_NOFOLLOW)
                try:
                    locked = _lock(descriptor, fcntl.LOCK_EX)
                    is_old = now - os.fstat(descriptor).st_mtime > ABANDONED
                    if locked is not False and (is_old or (locked and found[1] == _boot())):
                        os.unlink(entry.path)
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


@cache
def _boot() -> str:
    """This start of this machine, whose processes see each other's locks."""
    try:
        known = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        known = platform.node()
    return sha256(known.encode()).hexdigest()[:8]
