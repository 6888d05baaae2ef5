"""Which segments of a chain have equal patterns, told without making them."""

from __future__ import annotations

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan.chain import Chain
from bppsa_cupy.plan.schedule import Segment


class EqualSegments:
    """Gives segments codes: equal codes mean equal patterns.

    Diagonal elements change no pattern, nor does a square dense one beside an equal one; `patterns` are those
    of the others. A code stands for the product of patterns i to j - 1, where no earlier stretch is equal
    (`stretch`), or if it is negative for the whole diagonal of -1 - code rows. Equal stretches are told by
    longest common prefixes: O(m²) time once for m patterns, and nothing to remember for each segment. A chain
    of n equal elements has n codes, and one where they are square and dense.
    """

    def __init__(self, chain: Chain) -> None:
        self.patterns: list[Pattern] = []
        self._lengths = chain.lengths
        last: list[int] = [-1, -1]  # of the patterns before each element, the last one
        counts = [0, 0]  # of the elements before each one that are no diagonal
        for element in chain.elements:
            pattern = element.pattern
            counts.append(counts[-1] + (not pattern.is_diagonal))
            if not pattern.is_diagonal and not (self.patterns and _is_kept(pattern, self.patterns[-1])):
                self.patterns.append(pattern)
            last.append(len(self.patterns) - 1)
        self._counts, self._last = np.array(counts), np.array(last)
        # The first one from each element on: that after the last diagonal of a stretch of them.
        following = np.searchsorted(self._counts, self._counts, "right")
        self._first = np.append(self._last, -1)[following]
        self._earlier, self._longest = _earlier([pattern.digest for pattern in self.patterns])

    def code(self, segment: Segment) -> int:
        """The code of M(begin, end)."""
        assert 1 <= segment[0] < segment[1], segment
        return int(self.codes(np.array([segment]))[0])

    def codes(self, segments: np.ndarray) -> np.ndarray:
        """(k,) the code of each of `segments` (k, 2)."""
        begin, end = segments.T
        is_diagonal = self._counts[begin] == self._counts[end]
        i, j = np.where(is_diagonal, 0, self._first[begin]), np.where(is_diagonal, 0, self._last[end] + 1)
        while (repeated := (i < j) & (j - i <= self._longest[i])).any():
            shift = i[repeated] - self._earlier[i[repeated]]
            i[repeated] -= shift
            j[repeated] -= shift
        return np.where(is_diagonal, -1 - self._lengths[begin], i * (len(self.patterns) + 1) + j)

    def stretch(self, code: int) -> tuple[int, int]:
        """The patterns, i to j - 1, of a code from 0 on."""
        return divmod(code, len(self.patterns) + 1)


def _is_kept(pattern: Pattern, other: Pattern) -> bool:
    """Whether the product of both has the pattern of each."""
    rows, columns = pattern.shape
    return rows == columns and pattern.nnz == rows * columns and pattern.digest == other.digest


def _earlier(digests: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """For each i the earliest k < i whose following digests agree with those from i on for the longest
    stretch, and the length of that stretch; one more of each, 0."""
    numbers = {digest: number for number, digest in enumerate(dict.fromkeys(digests))}
    codes = np.array([numbers[digest] for digest in digests], np.int32)
    first, longest = np.zeros((2, codes.size + 1), np.int64)
    common = np.zeros(codes.size + 1, np.int32)
    for i in reversed(range(1, codes.size)):
        # Of i and k < i they are one more than of i + 1 and k + 1 < i + 1.
        earlier = common[:i]
        np.add(common[1 : i + 1], 1, out=earlier)
        np.copyto(earlier, 0, where=codes[:i] != codes[i])
        first[i] = int(np.argmax(earlier))
        longest[i] = int(earlier[first[i]])
    return first, longest
