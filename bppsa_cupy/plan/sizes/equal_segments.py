"""Which segments of a chain have equal patterns, told without making them."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.schedule import Segment


class EqualSegments:
    """Gives segments codes: equal codes mean equal patterns.

    Diagonal elements change no pattern, so only the others count; `patterns` are theirs. A code stands for
    the product of patterns i to j - 1, where no earlier stretch is equal (`stretch`), or if it is negative
    for the whole diagonal of -1 - code rows. Equal stretches are told by longest common prefixes: O(n²)
    time once, and nothing to remember for each segment. A chain of n equal elements has n codes.
    """

    def __init__(self, chain: Chain) -> None:
        self.patterns = [e.pattern for e in chain.elements if not e.pattern.is_diagonal]
        self._chain = chain
        self._before = [0, 0, *accumulate(int(not e.pattern.is_diagonal) for e in chain.elements)]
        self._first, self._longest = _earlier([pattern.digest for pattern in self.patterns])

    def code(self, segment: Segment) -> int:
        """The code of M(begin, end)."""
        assert 1 <= segment[0] < segment[1], segment
        i, j = self._before[segment[0]], self._before[segment[1]]
        if i == j:
            return -1 - self._chain.length(segment[0])
        while j - i <= self._longest[i]:
            i, j = self._first[i], j - i + self._first[i]
        return i * (len(self.patterns) + 1) + j

    def codes(self, segments: np.ndarray) -> np.ndarray:
        """(k,) the code of each of `segments` (k, 2)."""
        begin, end = segments.T
        before = np.array(self._before)
        first, longest = np.array([*self._first, 0]), np.array([*self._longest, 0])
        i, j = before[begin], before[end]
        while (repeated := (i < j) & (j - i <= longest[i])).any():
            shift = i[repeated] - first[i[repeated]]
            i[repeated] -= shift
            j[repeated] -= shift
        return np.where(i < j, i * (len(self.patterns) + 1) + j, -1 - self._chain.lengths[begin])

    def stretch(self, code: int) -> tuple[int, int]:
        """The patterns, i to j - 1, of a code from 0 on."""
        return divmod(code, len(self.patterns) + 1)


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
