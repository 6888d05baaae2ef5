"""Ranks that are threads of one process, one of which runs at a time: what `RankScan` needs of a group.

What is sent is read as late as MPI may read it, when its receiver waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from bppsa_cupy.devices import get_device
from bppsa_cupy.errors import PlanMismatchError


class Exchange:
    """Where ranks meet.

    sent  (source, target, bytes) of every message
    """

    def __init__(self, size):
        self.size, self.sent = size, []
        self.turn = threading.Condition()
        self.there, self.agreed, self.met = {}, [[] for _ in range(size)], {}
        self._waiting, self._ended, self._failures = {}, set(), []

    def play(self, part: Callable) -> list:
        """What `part(rank)` gives of each ThreadRank, in order. Raises what a rank raised, and AssertionError
        where all of them wait or a message was not waited for."""
        results = [None] * self.size

        def run_rank(rank):
            with self.turn:
                try:
                    results[rank] = part(ThreadRank(self, rank))
                except BaseException as error:
                    self._failures.append(error)
                self._ended.add(rank)
                self.turn.notify_all()

        threads = [threading.Thread(target=run_rank, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]
        assert not self.there, f"not waited for: {list(self.there)}"
        return results

    def wait(self, rank, ready):
        """Let other ranks run until `ready()`."""
        while not ready():
            self._waiting[rank] = ready
            stuck = len(self._waiting) + len(self._ended) == self.size
            assert not stuck or any(f() for f in self._waiting.values()), "every rank waits for another"
            assert not self._failures, "another rank has failed"
            self.turn.wait()
            del self._waiting[rank]


class ThreadRank:
    """One of `Exchange.size` ranks."""

    def __init__(self, exchange, rank):
        self.exchange, self.rank, self.size = exchange, rank, exchange.size
        self.meetings, self.device = 0, get_device("host")

    def isend(self, array, target, tag=0):
        key, there = (self.rank, target, tag), self.exchange.there
        assert key not in there, f"two messages with the tag {tag} are under way"
        there[key] = array
        self.exchange.sent.append((self.rank, target, array.nbytes))
        self.exchange.turn.notify_all()

    def receive(self, array, source, tag=0):
        key, there = (source, self.rank, tag), self.exchange.there
        array[...] = np.nan
        self.exchange.wait(self.rank, lambda: key in there)
        array[...] = there.pop(key)
        self.exchange.turn.notify_all()

    def finish(self):
        there = self.exchange.there
        self.exchange.wait(self.rank, lambda: all(source != self.rank for source, *_ in there))

    def allgather(self, array, into, rows=None):
        counts = [len(array)] * self.size if rows is None else rows
        assert counts[self.rank] == len(array) and sum(counts) == len(into) and array.flags.c_contiguous
        into[...] = np.concatenate(self._met(array.copy()))

    def broadcast(self, array, root=0):
        array[...] = self._met(array.copy())[root]

    def sum(self, array):
        first, *others = self._met(array.copy())
        array[...] = first
        for other in others:
            array += other
        return array

    def any(self, flag):
        return any(self._met(flag))

    def gather(self, value):
        return self._met(value)

    def share_choices(self):
        pass

    def _met(self, value):
        """What every rank gives in its next meeting."""
        met = self.exchange.met
        number, self.meetings = self.meetings, self.meetings + 1
        met.setdefault(number, {})[self.rank] = value
        self.exchange.turn.notify_all()
        self.exchange.wait(self.rank, lambda: len(met[number]) == self.size)
        return [met[number][rank] for rank in range(self.size)]

    def progress(self):
        pass

    def agree(self, **values):
        """Wait for all ranks; raises PlanMismatchError where one has other values."""
        agreed, history = self.exchange.agreed, self.exchange.agreed[self.rank]
        history.append(values)
        count = len(history)
        self.exchange.turn.notify_all()
        self.exchange.wait(self.rank, lambda: all(len(entries) >= count for entries in agreed))
        if any(entries[count - 1] != values for entries in agreed):
            raise PlanMismatchError(f"the ranks have {[entries[count - 1] for entries in agreed]}")
