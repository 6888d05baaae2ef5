"""Which segments of a chain have equal patterns, told without making them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.schedule import Segment

#: (i, j, 0): the product of the non-diagonal elements i to j - 1 of a chain, counted from 0, where no
#: earlier ones are equal. (0, 0, d): the whole diagonal of d rows.
Place = tuple[int, int, int]


class Repeats:
    """Finds for a segment the place of its pattern: equal places mean equal patterns.

    Diagonal elements change no pattern, so only the others count; `patterns` are theirs. Equal stretches
    are told by longest common prefixes: O(n²) time once, and nothing to remember for each segment. A
    chain of n equal elements has n places.
    """

    def __init__(self, chain: Chain) -> None:
        self.patterns = [e.pattern for e in chain.elements if not e.pattern.is_diagonal]
        self._chain = chain
        self._before = [0, 0, *accumulate(int(not e.pattern.is_diagonal) for e in chain.elements)]
        self._first, self._longest = _earlier([pattern.digest for pattern in self.patterns])

    def place(self, segment: Segment) -> Place:
        """The place of M(begin, end)."""
        assert 1 <= segment[0] < segment[1], segment
        i, j = self._before[segment[0]], self._before[segment[1]]
        if i == j:
            return 0, 0, self._chain.length(segment[0])
        while j - i <= self._longest[i]:
            i, j = self._first[i], j - i + self._first[i]
        return i, j, 0

    def codes(self, segments: np.ndarray) -> np.ndarray:
        """(k,) a number of the place of each of `segments` (k, 2), equal only for equal places."""
        begin, end = segments.T
        before = np.array(self._before)
        i, j = self._earliest(before[begin], before[end])
        return np.where(i < j, i * (len(self.patterns) + 1) + j, -1 - self._chain.lengths[begin])

    def all_starts(self) -> tuple[np.ndarray, np.ndarray]:
        """(i, j), each (n + 2, n + 2), of the place of every segment [begin, end); diagonals have i = j."""
        before = np.array(self._before)
        i, j = np.broadcast_arrays(before[:, None], before)
        return self._earliest(i, j)

    def _earliest(self, i: np.ndarray, j: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the stretches [i, j) are met first."""
        i, j = i.copy(), j.copy()
        first, longest = np.array([*self._first, 0]), np.array([*self._longest, 0])
        while (repeated := (i < j) & (j - i <= longest[i])).any():
            shift = i[repeated] - first[i[repeated]]
            i[repeated] -= shift
            j[repeated] -= shift
        return i, j

    def all_places(self) -> Iterator[Place]:
        """The place of every segment, each once."""
        for i, longest in enumerate(self._longest):
            for j in range(i + longest + 1, len(self.patterns) + 1):
                yield i, j, 0
        for size in {e.pattern.shape[0] for e in self._chain.elements if e.pattern.is_diagonal}:
            yield 0, 0, size


def _earlier(digests: list[str]) -> tuple[list[int], list[int]]:
    """For each i the earliest k < i whose following digests agree with those from i on for the longest
    stretch, and the length of that stretch."""
    numbers = {digest: number for number, digest in enumerate(dict.fromkeys(digests))}
    codes = np.array([numbers[digest] for digest in digests], np.int32)
    first, longest = [0] * codes.size, [0] * codes.size
    common = np.zeros(codes.size + 1, np.int32)
    for i in reversed(range(1, codes.size)):
        # Of i and k < i they are one more than of i + 1 and k + 1 < i + 1.
        earlier = common[:i]
        np.add(common[1 : i + 1], 1, out=earlier)
        np.copyto(earlier, 0, where=codes[:i] != codes[i])
        first[i] = int(np.argmax(earlier))
        longest[i] = int(earlier[first[i]])
    return first, longest
