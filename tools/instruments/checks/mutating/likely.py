"""Which tests have seen faults near by: the likeliest to see the next one, and so the first to meet it."""

from __future__ import annotations

from collections import Counter, defaultdict

from mutating.mutant import Mutant


class Likely:
    """Tests, or cases, that have seen faults, by the places of these."""

    def __init__(self) -> None:
        self._seen: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)

    def add(self, mutant: Mutant, test: str) -> None:
        """A test has seen this fault."""
        self._seen[mutant.path].append((mutant.line, test))

    def weights(self, mutant: Mutant) -> Counter[str]:
        """How likely tests see a fault: each of those they have seen in its file counts by how near it is."""
        found: Counter[str] = Counter()
        for line, test in self._seen[mutant.path]:
            found[test] += 1 / (1 + abs(line - mutant.line))  # type: ignore[assignment]
        return found
