"""Ctrl-C at places where the work can be left."""

from __future__ import annotations

import atexit
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _State:
    """deferring  inside `interrupts_deferred`; pending  a Ctrl-C has come that has not ended the work yet."""

    deferring = False
    pending = False


_state = _State()


@contextmanager
def one_interrupt() -> Iterator[None]:
    """The first Ctrl-C inside the block raises KeyboardInterrupt, later ones do not disturb the tidying up.

    An exception that a signal raises inside a callback of compiled code is lost: `interruptible` raises
    it again, and nothing is printed. For command lines; nothing is done where Ctrl-C is not Python's, as
    under nohup, or in another than the main thread.
    """
    if not _is_ours():
        yield
        return
    hook, sys.unraisablehook = sys.unraisablehook, _unraisable(sys.unraisablehook)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = hook
        _state.pending = False
        # Callbacks run from the last one registered to the first.
        atexit.unregister(_ignore)
        atexit.register(_ignore)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Ctrl-C inside the block takes effect at the next `interruptible` in it, or at its end.

    For a library that an exception inside of a call, or inside of a callback, would leave broken. Nothing is
    done in another than the main thread, where no Ctrl-C arrives.
    """
    previous = signal.getsignal(signal.SIGINT)
    ours = previous is _interrupt or _is_ours()
    if _state.deferring or not ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _defer)
    _state.deferring = True
    try:
        yield
        interruptible()
    finally:
        _state.deferring = False
        signal.signal(signal.SIGINT, previous)
        if previous is not _interrupt:
            _state.pending = False


def interruptible() -> None:
    """Raise KeyboardInterrupt where a Ctrl-C has come and has not taken effect."""
    if _state.pending and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


def _interrupt(number: int, frame: Any) -> None:
    if not _state.pending:
        _state.pending = True
        raise KeyboardInterrupt


def _defer(number: int, frame: Any) -> None:
    _state.pending = True


def _is_ours() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt here."""
    main = threading.current_thread() is threading.main_thread()
    return main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _unraisable(otherwise: Any) -> Any:
    def hook(lost: Any) -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            otherwise(lost)

    return hook


def _ignore() -> None:
    """While the process ends there is nothing left to interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
