"""Bound launches, and which of a sequence's have to wait for which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bppsa_cupy.raw_kernels.kernel import Kernel

#: A call that launches work bound to its arrays.
Launch = Callable[[], None]


class Bound:
    """A kernel's launch on the arguments it was bound to, in the order of its parameters."""

    __slots__ = ("_launched", "_run", "arguments", "kernel")

    def __init__(
        self, kernel: Kernel, arguments: Sequence[Any], call: Launch, launched: Counter[str]
    ) -> None:
        self.kernel, self.arguments = kernel, arguments
        self._run, self._launched = call, launched

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

    A launch waits for earlier ones that write what it reads or writes, or read what it writes. One that was
    not bound waits for all, and all that follow wait for it. Launches that it waits for through another one
    are left out.

    Parameters
    ----------
    address : callable
        Returns the address of an array.
    """
    spans = [
        (number, address(array), address(array) + array.nbytes, written)
        for number, launch in enumerate(launches)
        if isinstance(launch, Bound)
        for array, written in launch.arrays()
    ]
    owner, begin, end, writes = np.array(spans, np.int64).reshape(-1, 4).T
    result: list[tuple[int, ...]] = []
    behind: list[int] = []  # of each launch a bit for every launch that has ended when it begins
    barrier: set[int] = set()
    for number, launch in enumerate(launches):
        if isinstance(launch, Bound):
            before = set(barrier)
            first, last = np.searchsorted(owner, [number, number + 1])
            for _, start, stop, written in spans[first:last]:
                meets = (begin[:first] < stop) & (end[:first] > start) & (writes[:first] | written > 0)
                before.update(owner[:first][meets].tolist())
        else:
            before, barrier = set(range(number)), {number}
        ended, nearest = 0, []
        for other in sorted(before, reverse=True):
            if not ended >> other & 1:
                nearest.append(other)
                ended |= behind[other] | 1 << other
        behind.append(ended)
        result.append(tuple(reversed(nearest)))
    return result


def branches(before: Sequence[Sequence[int]], most: int) -> list[int]:
    """The branch of a graph that each launch goes to: one whose latest launch it waits for, else a new one;
    where there are `most` branches already, the one that has been idle for longest."""
    tails: list[int] = []
    result = []
    for number, waits in enumerate(before):
        branch = next((k for k, tail in enumerate(tails) if tail in waits), len(tails))
        if branch == most:
            branch = min(range(most), key=tails.__getitem__)
        tails[branch : branch + 1] = [number]
        result.append(branch)
    return result
