"""An error on one rank ends them all."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import NoReturn

from bppsa_cupy.distributed.group import end, import_mpi
from bppsa_cupy.system.complaint import STATED, complaint

#: The tag of COMM_WORLD by which a failing rank gives notice: the highest that every MPI has.
NOTICE = 32767
#: Seconds for notices and words to arrive, and the most seconds to wait for that, or for the end.
GRACE, PATIENCE = 0.05, 2.0


@contextmanager
def guard() -> Iterator[None]:
    """An exception in the block, on any rank of COMM_WORLD, ends all ranks with its exit code.

    One rank says so on stderr, on one line, as `error: rank 2: …`: the first that fails, of several at once
    the lowest. The code is 1, 130 after Ctrl-C, or a SystemExit's own; an exception that states no error
    of the caller shows its traceback before the line. Without the guard the others would wait for
    ever, since a Python process waits for them when it exits. With one rank, exceptions pass as they are.

    For a command's main; the block makes the Group. MPI is initialised when the block is entered.
    Raises DistributedError without mpi4py.
    """
    mpi = import_mpi()
    try:
        yield
        end()
    except BaseException as error:
        done = isinstance(error, SystemExit) and error.code in (None, 0)
        if done or mpi.COMM_WORLD.size == 1 or mpi.Is_finalized():
            raise
        _end(mpi, error)


def _end(mpi: ModuleType, error: BaseException) -> NoReturn:
    with suppress(ValueError):  # another thread than the main one
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = 1
    try:
        trace, text, code = _described(error)
        if text and _speaks(mpi):
            sys.stdout.flush()
            sys.stderr.write(f"{trace}error: rank {mpi.COMM_WORLD.rank}: {text}\n")
            sys.stderr.flush()
            _let_it_be_read()
        elif text:
            time.sleep(PATIENCE)
        else:
            _let_it_be_read()
    finally:
        # MPI's own words on the end would hide ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        mpi.COMM_WORLD.Abort(code)
        os._exit(code)


def _let_it_be_read() -> None:
    """Wait until the launcher has read what this rank wrote to stderr, and has had time to pass it on: what
    it has not when the ranks end is lost."""
    unread, end = array("i", [1]), time.monotonic() + PATIENCE / 2
    with suppress(ImportError, OSError):  # a system without them, and no pipe
        import fcntl
        import termios

        while unread[0] and time.monotonic() < end:
            fcntl.ioctl(2, termios.FIONREAD, unread)
            time.sleep(1e-3)
    time.sleep(GRACE)


def _described(error: BaseException) -> tuple[str, str, int]:
    """A traceback, what to say (nothing where it is said) and the exit code."""
    if isinstance(error, SystemExit):
        return ("", "", error.code) if isinstance(error.code, int) else ("", str(error.code), 1)
    if isinstance(error, STATED):
        return ("", *complaint(error))
    trace = "".join(traceback.format_exception(error))
    return trace, f"{type(error).__name__}: {' '.join(str(error).split())}", 1


def _speaks(mpi: ModuleType) -> bool:
    """Whether this rank is the one that tells its error: none failed before it, no lower one with it."""
    world, nothing = mpi.COMM_WORLD, (bytearray(), mpi.BYTE)
    try:
        if world.Iprobe(mpi.ANY_SOURCE, NOTICE):
            return False
        for rank in range(world.size):
            if rank != world.rank:
                world.Isend(nothing, rank, NOTICE)
        status, end = mpi.Status(), time.monotonic() + GRACE
        while time.monotonic() < end:
            while world.Iprobe(mpi.ANY_SOURCE, NOTICE, status):
                world.Recv((bytearray(), mpi.BYTE), status.source, NOTICE)
                if status.source < world.rank:
                    return False
            time.sleep(1e-3)
    except Exception:  # MPI itself has failed: rather two lines than none
        return True
    return True
