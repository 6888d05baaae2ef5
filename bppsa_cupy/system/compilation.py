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
from contextlib import contextmanager
from pathlib import Path

#: Seconds of compiling in a process after which the line is printed.
PATIENCE = 2.0


def kept_in() -> Path:
    """The folder of compiled code and measured choices: below XDG_CACHE_HOME (default ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "bppsa-cupy"


class _Notice:
    """What this process has compiled so far, and whether it has said so."""

    names: list[str] = []  # noqa: RUF012  there is one process
    seconds = 0.0
    is_printed = False


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """Count the time of the block as compiling `name`."""
    began = time.monotonic()
    try:
        yield
    finally:
        _Notice.names.append(name)
        _Notice.seconds += time.monotonic() - began
        is_quiet = _Notice.is_printed or os.environ.get("BPPSA_QUIET") == "1" or sys.stderr is None
        if _Notice.seconds >= PATIENCE and not is_quiet:
            _Notice.is_printed = True
            folder = str(kept_in()).replace(os.path.expanduser("~"), "~", 1)
            text = f"compiles kernels for this machine ({', '.join(_Notice.names)}, …)"
            print(f"bppsa-cupy {text} and stores them in {folder}", file=sys.stderr, flush=True)


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
