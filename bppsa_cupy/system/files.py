"""Files that are written whole or not at all.

A temporary file of NAME is called .NAME.HOST.PROCESS.TOKEN.part. The next writer of NAME removes those whose
process on this host has ended, and any whose last write is `ABANDONED` seconds old.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from bppsa_cupy.errors import BppsaError, reason_of

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
#: Seconds after its last write from which on a temporary file of another machine has no writer.
ABANDONED = 86_400
#: This machine, in the names of temporary files.
_HOST = sha256(platform.node().encode()).hexdigest()[:8]


@contextmanager
def whole_file(path: str | os.PathLike[str], *, error: type[BppsaError] = BppsaError) -> Iterator[Path]:
    """An empty temporary file in the folder of `path`, for the block to write to.

    When the block ends without an exception, that file is flushed to the disk and renamed over `path`; a
    link is followed. After any exception it is gone, and an older file at `path` is as it was. Temporary
    files of killed writers of `path` are removed.
    Raises `error` where the file cannot be written (no space, no such folder, no permission).
    """
    target = _target(path, error)
    # At most 100 bytes of the name, so that the temporary name is not too long for the folder.
    stem = f".{os.fsencode(target.name)[:100].decode(errors='ignore')}.{_HOST}."
    temporary = target.with_name(f"{stem}{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        _remove_abandoned(target.parent, stem)
        temporary.touch(exist_ok=False)
        yield temporary
        _sync(temporary)
        os.replace(temporary, target)
        _sync(target.parent)
    except OSError as cause:
        raise error(write_failure(path, cause)) from cause
    finally:
        with suppress(OSError):  # it was renamed
            temporary.unlink()


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


def _remove_abandoned(folder: Path, stem: str) -> None:
    """Remove the temporary files of a name whose writers were killed."""
    name = re.compile(re.escape(stem.removesuffix(f"{_HOST}.")) + r"([0-9a-f]{8})\.(\d+)\.[0-9a-f]{8}\.part")
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found = name.fullmatch(entry.name)
            if found and entry.is_file(follow_symlinks=False):
                with suppress(OSError):
                    is_old = time.time() - entry.stat().st_mtime > ABANDONED
                    if is_old or (found[1] == _HOST and not _is_alive(int(found[2]))):
                        os.unlink(entry.path)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # of another user, or no process number
        pass
    return True
