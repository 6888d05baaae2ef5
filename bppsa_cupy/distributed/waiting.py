"""Waiting for a message without taking the core from a rank that works."""

from __future__ import annotations

import abc
import os
import time
from collections.abc import Callable
from typing import Protocol

#: Seconds of testing at full speed: some round trips of a small message.
SPIN = 300e-6
#: Bytes a second that a copy between two processes moves at least: a long message is tested longer.
RATE = 2.5e9
#: Tests between two looks at the clock.
BURST = 16
#: The first sleep and the longest, in seconds, and by what a sleep is longer than the one before.
SHORTEST, LONGEST, GROWTH = 20e-6, 1e-3, 1.25


class Late(Protocol):
    """What watches a wait: called from time to time while it lasts, which may raise, and told of its end."""

    def __call__(self) -> None: ...

    def end(self) -> None: ...


class Handle(abc.ABC):
    """A message under way. Keep its array as it is until `wait` has returned, or `test` True.

    nbytes  bytes of the message
    """

    __slots__ = ("late", "nbytes")

    nbytes: int
    #: What watches a `wait` where it is set.
    late: Late

    @abc.abstractmethod
    def test(self) -> bool:
        """Whether the message is through: a sent array may be written, a received one read. Does not wait.

        Raises DistributedError where the message does not fit the array.
        """

    def wait(self) -> None:
        """Return when the message is through. Raises as `test`."""
        wait_until(self.test, self.nbytes, getattr(self, "late", None))


def wait_until(done: Callable[[], bool], nbytes: int = 0, late: Late | None = None) -> None:
    """Return when `done()` is true: it is asked at full speed for a bounded time, then between sleeps.

    late  is called after each sleep, and told of the end

    A signal is taken between two calls, so Ctrl-C ends a wait. The bound grows with the bytes awaited,
    since a sender waits for as long as its receiver copies, and other ranks may take the core meanwhile.
    """
    for _ in range(BURST):
        if done():
            return
    end = time.perf_counter() + SPIN + nbytes / RATE
    while time.perf_counter() < end:
        os.sched_yield()
        for _ in range(BURST):
            if done():
                return
    pause = SHORTEST
    while not done():
        time.sleep(pause)
        if late is not None:
            late()
        pause = min(pause * GROWTH, LONGEST)
    if late is not None:
        late.end()
