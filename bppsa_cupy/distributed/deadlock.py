"""Ranks that wait for each other for ever: found by what each tells of its own wait."""

from __future__ import annotations

import atexit
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from bppsa_cupy.errors import DistributedError

#: Seconds of waiting after which a rank tells the others.
LATE = 2.0
#: Seconds for which ranks wait for each other before one says so, beside those of a message's bytes, which
#: may be on their way.
STUCK, RATE = 3.0, 20e6
#: The tag of COMM_WORLD by which ranks tell: the second highest that every MPI has.
TOLD = 32766
#: Seconds between two looks at what others tell, at the end.
PAUSE = 1e-3
#: Ranks that an error shows.
SHOWN = 4


@dataclass(frozen=True)
class Wait:
    """What a rank waits for; ranks are those of COMM_WORLD.

    ranks   one of which at least has to do something first
    call    the collective call, equal on all ranks that make it; empty for a message
    nbytes  of the message
    text    for people
    number  another one for every wait of a rank
    """

    ranks: tuple[int, ...]
    call: str
    nbytes: int
    text: str
    number: int


class Waits:
    """What the ranks of COMM_WORLD wait for, as they tell each other after `LATE` seconds, and again when
    they go on."""

    def __init__(self, mpi: ModuleType) -> None:
        self._mpi, self._world = mpi, mpi.COMM_WORLD
        self._others: dict[int, Wait] = {}
        self._under_way: list[tuple[Any, np.ndarray]] = []
        self.count = 0
        atexit.register(self._settle)

    def _settle(self) -> None:
        """Take all that was told, when every rank has ended: MPI's own end, which waits for all ranks too,
        kills those whose messages nobody took."""
        # After an uncaught exception the others wait for this rank: `python -m mpi4py` ends them.
        if self._mpi.Is_finalized() or getattr(sys, "last_value", None) is not None:
            return
        for _ in range(2):  # what a rank told just before the first may be heard after it
            ended = self._world.Ibarrier()
            while not ended.Test():
                self.hear()
                time.sleep(PAUSE)
            self.hear()

    def tell(self, wait: Wait | None) -> None:
        """Let all ranks know for what this one waits, or that it goes on."""
        text = b"" if wait is None else json.dumps(vars(wait)).encode()
        told = np.frombuffer(text, np.uint8)
        self._under_way = [one for one in self._under_way if not one[0].Test()]
        for rank in range(self._world.size):
            if rank != self._world.rank:
                self._under_way.append((self._world.Isend((told, self._mpi.BYTE), rank, TOLD), told))

    def hear(self) -> None:
        """Take what others have told."""
        status = self._mpi.Status()
        while self._world.Iprobe(self._mpi.ANY_SOURCE, TOLD, status):
            source, told = status.source, np.empty(status.Get_count(self._mpi.BYTE), np.uint8)
            self._world.Recv((told, self._mpi.BYTE), source, TOLD)
            self._others.pop(source, None)
            if told.size:
                given = json.loads(told.tobytes())
                self._others[source] = Wait(tuple(given.pop("ranks")), **given)

    def knot(self, own: Wait) -> dict[int, Wait]:
        """The ranks that must act before this one goes on, and those before which they wait, this one among
        them, where all of them wait; else none. Those that make one collective call are on their way."""
        found, reached = {self._world.rank: own}, list(own.ranks)
        while reached:
            rank = reached.pop()
            if rank in found:
                continue
            if rank not in self._others:
                return {}
            found[rank] = self._others[rank]
            reached += found[rank].ranks
        calls = {wait.call for wait in found.values()}
        return {} if len(calls) == 1 and own.call else found


class Watched:
    """One wait: called from time to time while it lasts, and `end`ed after it.

    wait  gives what this rank waits for

    The call raises DistributedError where ranks wait for each other.
    """

    def __init__(self, waits: Waits, wait: Callable[[int], Wait]) -> None:
        self._waits, self._wait = waits, wait
        self._own: Wait | None = None
        self._knot: dict[int, Wait] = {}
        self._start = self._since = 0.0

    def __call__(self) -> None:
        now = time.monotonic()
        self._start = self._start or now
        if now - self._start < LATE:
            return
        if self._own is None:
            self._waits.count += 1
            self._own = self._wait(self._waits.count)
            self._waits.tell(self._own)
        self._waits.hear()
        knot = self._waits.knot(self._own)
        if knot != self._knot:
            self._knot, self._since = knot, now
        nbytes = max((wait.nbytes for wait in knot.values()), default=0)
        if knot and now - self._since > STUCK + nbytes / RATE:
            told = [f"rank {rank} {wait.text}" for rank, wait in sorted(knot.items())]
            more = f"; {len(told) - SHOWN} more wait" if len(told) > SHOWN else ""
            raise DistributedError(
                f"ranks wait for each other: {'; '.join(told[:SHOWN])}{more}; every rank makes the same "
                "calls, also where callbacks differ"
            )

    def end(self) -> None:
        """The wait is over."""
        if self._own is not None:
            self._waits.tell(None)
            self._own = None
