"""Files that are written whole or not at all.

A temporary file of NAME is called .NAME.TOKEN.part; that of a killed writer stays.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bppsa_cupy.errors import BppsaError, reason_of

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def whole_file(path: str | os.PathLike[str], *, error: type[BppsaError] = BppsaError) -> Iterator[Path]:
    """An empty temporary file in the folder of `path`, for the block to write to.

    When the block ends without an exception, that file is flushed to the disk and renamed over `path`; a
    link is followed. After any exception it is gone, and an older file at `path` is as it was.
    Raises `error` where the file cannot be written (no space, no such folder, no permission).
    """
    target = _target(path, error)
    # At most 100 bytes of the name, so that the temporary name is not too long for the folder.
    stem = os.fsencode(target.name)[:100].decode(errors="ignore")
    temporary = target.with_name(f".{stem}.{secrets.token_hex(8)}.part")
    try:
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
        return f"{path} cannot be written ({reason}): free some space, or pass a path on another disk"
    return f"{path} cannot be written ({reason}): pass a path in an existing, writable folder"


def _target(path: str | os.PathLike[str], error: type[BppsaError]) -> Path:
    try:
        target = Path(os.path.realpath(path))
        is_other = target.exists() and not target.is_file()
    except (TypeError, ValueError) as cause:  # no text, or one that holds a null character
        raise error(f"{path!r} is not a valid path ({cause}): pass the name of a file") from cause
    except OSError as cause:
        raise error(write_failure(path, cause)) from cause
    if is_other:
        raise error(f"{path} exists and is not a regular file: pass another path to write to")
    return target


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
