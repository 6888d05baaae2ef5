"""Bound launches, and which of a sequence's have to wait for which."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bppsa_cupy.raw_kernels.kernel import Kernel

#: A call that launches work bound to its arrays.
Launch = Callable[[], None]


class Bound:
    """A kernel's launch on the arguments it was bound to, in the order of its parameters."""

    __slots__ = ("_launched", "_run", "arguments", "kernel")

    def __init__(self, kernel: Kernel, arguments: Sequence[Any], run: Launch, launched: Counter[str]) -> None:
        self.kernel, self.arguments = kernel, arguments
        self._run, self._launched = run, launched

    def __call__(self) -> None:
        self._launched[self.kernel.name] += 1
        self._run()

    def arrays(self) -> Iterator[tuple[Any, bool]]:
        """Its arrays that are not empty, and whether each is written."""
        for parameter, value in zip(self.kernel.parameters, self.arguments, strict=False):
            if parameter.is_array and value.size:
                yield value, parameter.role != "in"


def predecessors(launches: Sequence[Launch], address: Callable[[Any], int]) -> list[tuple[int, ...]]:
    """For each launch of a sequence, the earlier ones it waits for, so that every array ends as it does where
    they run one after another.

    A launch waits for the last one that wrote what it reads or writes, and for those that have read since
    what it writes. One that was not bound waits for all, and all that follow wait for it. What a launch waits
    for anyway, by one that it waits for, is left out.

    address  where an array's memory begins
    """
    memory, found = _Memory(), []
    behind: list[int] = []  # of each launch a bit for every launch that has ended when it begins
    barrier: set[int] = set()
    for number, launch in enumerate(launches):
        if isinstance(launch, Bound):
            before = set(barrier)
            for array, written in launch.arrays():
                begin = address(array)
                before |= memory.take(begin, begin + array.nbytes, number, written)
        else:
            before, barrier = set(range(number)), {number}
        ended, nearest = 0, []
        for other in sorted(before, reverse=True):
            if not ended >> other & 1:
                nearest.append(other)
                ended |= behind[other] | 1 << other
        behind.append(ended)
        found.append(tuple(reversed(nearest)))
    return found


def branches(before: Sequence[Sequence[int]], most: int) -> list[int]:
    """The branch of a graph that each launch goes to: one whose latest launch it waits for, else a new one;
    where there are `most` branches already, the one that has been idle for longest."""
    tails: list[int] = []
    found = []
    for number, waits in enumerate(before):
        branch = next((k for k, tail in enumerate(tails) if tail in waits), len(tails))
        if branch == most:
            branch = min(range(most), key=tails.__getitem__)
        tails[branch : branch + 1] = [number]
        found.append(branch)
    return found


@dataclass
class _Range:
    """Bytes of memory: which launch wrote them last, -1 for none, and which have read them since."""

    begin: int
    end: int
    writer: int
    readers: list[int]


class _Memory:
    """Ranges that were read or written, ascending and apart."""

    def __init__(self) -> None:
        self._ranges: list[_Range] = []

    def take(self, begin: int, end: int, by: int, written: bool) -> set[int]:
        """Let launch `by` read or write a range; the launches it waits for."""
        first = bisect_right(self._ranges, begin, key=lambda r: r.end)
        last = bisect_left(self._ranges, end, key=lambda r: r.begin)
        inside = self._cut(first, last, begin, end)
        waits = {r.writer for r in inside} | {one for r in inside if written for one in r.readers}
        if written:
            made = [_Range(begin, end, by, [])]
        else:
            for one in inside:
                one.readers.append(by)
            made = list(_filled(inside, begin, end, by))
        first = bisect_right(self._ranges, begin, key=lambda r: r.end)
        self._ranges[first : first + len(inside)] = made
        return waits - {-1, by}

    def _cut(self, first: int, last: int, begin: int, end: int) -> list[_Range]:
        """The ranges from `first` to `last`, cut at `begin` and `end`: those inside of the two."""
        pieces = []
        for one in self._ranges[first:last]:
            if cuts := [p for p in (begin, end) if one.begin < p < one.end]:
                for start, stop in pairwise((one.begin, *cuts, one.end)):
                    pieces.append(_Range(start, stop, one.writer, list(one.readers)))
            else:
                pieces.append(one)
        self._ranges[first:last] = pieces
        return [one for one in pieces if begin <= one.begin and one.end <= end]


def _filled(ranges: Sequence[_Range], begin: int, end: int, by: int) -> Iterator[_Range]:
    """The ranges, and between them what launch `by` alone has read."""
    for one in ranges:
        if begin < one.begin:
            yield _Range(begin, one.begin, -1, [by])
        yield one
        begin = one.end
    if begin < end:
        yield _Range(begin, end, -1, [by])
