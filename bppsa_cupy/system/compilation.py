"""The cache folder, and the line on stderr that says what a first run compiles.

Nothing is printed where all code comes from the cache, where compiling takes less than PATIENCE seconds in
all, or where the environment sets BPPSA_QUIET=1.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bppsa_cupy.system.memory import check_thread_room

#: Seconds of compiling in a process before the line is printed.
PATIENCE = 2.0


def kept_in() -> Path:
    """The folder of compiled code and measured choices: below XDG_CACHE_HOME (default ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "bppsa-cupy"


class _Notice:
    """What this process has compiled so far, and whether it has said so."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.seconds = 0.0
        self.is_printed = False

    def print_line(self) -> None:
        if self.is_printed or sys.stderr is None:
            return
        self.is_printed = True
        folder = str(kept_in()).replace(os.path.expanduser("~"), "~", 1)
        print(
            f"bppsa-cupy compiles its kernels for this machine, once: {', '.join(self.names)}, … "
            f"(kept in {folder})",
            file=sys.stderr,
            flush=True,
        )


_NOTICE = _Notice()


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """Count the time of the block as compiling `name`."""
    if _NOTICE.is_printed or os.environ.get("BPPSA_QUIET") == "1":
        yield
        return
    _NOTICE.names.append(name)
    began, timer = time.monotonic(), threading.Timer(max(0.0, PATIENCE - _NOTICE.seconds), _NOTICE.print_line)
    timer.daemon = True
    with suppress(MemoryError, RuntimeError):  # no memory for a thread: no line
        check_thread_room()
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _NOTICE.seconds += time.monotonic() - began


_REFUSING = threading.local()


class NotCompiledError(Exception):
    """A function is not compiled yet, inside of `compiled_only`."""


@contextmanager
def compiled_only() -> Iterator[None]:
    """Raise NotCompiledError in this thread where the block would compile a function."""
    _REFUSING.on = True
    try:
        yield
    finally:
        _REFUSING.on = False


def is_compiled_only() -> bool:
    """Whether this thread is inside of `compiled_only`."""
    return getattr(_REFUSING, "on", False)
