"""What a first run says while it compiles: one line on stderr, and on a terminal a count of what is compiled.

Nothing is said where all comes from the cache, where compiling takes less than PATIENCE seconds in all, or
where the environment sets BPPSA_QUIET=1. Nothing goes to stdout.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba.core import event
from tqdm import tqdm

#: Seconds of compiling in a process before it says so.
PATIENCE = 2.0


def kept_in() -> Path:
    """Where the project keeps what it compiled: below XDG_CACHE_HOME (default ~/.cache)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "bppsa-cupy"


class _Notice:
    """The functions this process has compiled, and what was said of them."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._seconds, self._began = 0.0, 0.0
        self._written = False
        self._bar: Any = None

    def start(self, name: str) -> None:
        self._names.append(name)
        self._began = time.monotonic()

    def pulse(self, cache: Path) -> None:
        """Say what is due; called often while a function is compiled."""
        total = self._seconds + time.monotonic() - self._began
        if total < PATIENCE or os.environ.get("BPPSA_QUIET") == "1" or sys.stderr is None:
            return
        if not self._written:
            self._written = True
            print(
                f"bppsa-cupy compiles its kernels for this machine, once: {', '.join(self._names)}, … "
                f"(kept in {str(cache).replace(os.path.expanduser('~'), '~', 1)})",
                file=sys.stderr,
                flush=True,
            )
        if self._bar is None and sys.stderr.isatty():
            form = "{desc} ({n_fmt} compiled, {elapsed})"
            count = len(self._names) - 1
            self._bar = tqdm(
                desc=self._names[-1], initial=count, bar_format=form, leave=False, dynamic_ncols=True
            )
            self._bar.start_t -= total
        if self._bar is not None and time.time() - self._bar.last_print_t > self._bar.mininterval:
            self._bar.update(0)
            self._bar.refresh()
            self._bar.last_print_t = time.time()

    def end(self, cache: Path) -> None:
        self.pulse(cache)
        self._seconds += time.monotonic() - self._began
        if self._bar is not None:
            self._bar.close()
            self._bar = None


_NOTICE = _Notice()
_ANNOUNCED: set[Callable[..., Any]] = set()


class _Functions(event.Listener):
    """Numba's compilations: those of announced functions count, each with all it calls as one."""

    def __init__(self) -> None:
        self.depth = 0

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if is_compiled_only():
            raise NotCompiledError(function.__name__)
        if self.depth == 0 and function in _ANNOUNCED:
            _NOTICE.start(function.__name__)
            self.depth = 1
        elif self.depth:
            self.depth += 1

    def on_end(self, event: Any) -> None:
        if self.depth == 1:
            _NOTICE.end(kept_in())
        self.depth = max(self.depth - 1, 0)


class _Passes(event.Listener):
    """The compiler's passes, some hundreds a function: the clock of the notice."""

    def on_start(self, event: Any) -> None:
        if _FUNCTIONS.depth:
            _NOTICE.pulse(kept_in())

    def on_end(self, event: Any) -> None:
        pass


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


_FUNCTIONS = _Functions()
event.register("numba:compile", _FUNCTIONS)
event.register("numba:run_pass", _Passes())


def announce(dispatcher: Any) -> None:
    """Count the compilations of one of Numba's dispatchers."""
    _ANNOUNCED.add(dispatcher.py_func)


@contextmanager
def compiling(name: str, cache: Path) -> Iterator[None]:
    """Count what the block does as compiling `name`, which is kept in `cache` by whoever compiles it."""
    _NOTICE.start(name)
    try:
        yield
    finally:
        _NOTICE.end(cache)
