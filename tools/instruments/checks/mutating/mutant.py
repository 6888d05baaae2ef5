"""One fault: a file, a line, what becomes of it; and the order in which a run tries them."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[4]
#: Faults of a file that are tried before the next file's.
IN_TURN = 10


@dataclass(frozen=True)
class Mutant:
    """A fault.

    path       of the file, below the checkout
    line, end  first and last line of what is changed
    text       of the first line, without the spaces around it
    change     what is written there, and what instead; "#2" after it where it is the second such of the file
    place      where the fault's maker finds it again
    """

    path: str
    line: int
    end: int
    text: str
    change: str
    place: tuple[int, ...]

    @property
    def key(self) -> str:
        """Names the fault, wherever in the file its line is."""
        return f"{self.path} | {self.text} | {self.change}"


def numbered(mutants: Iterable[Mutant]) -> list[Mutant]:
    """The same faults of a file, equal keys told apart by a number."""
    seen: Counter[str] = Counter()
    result = []
    for mutant in mutants:
        seen[mutant.key] += 1
        count = seen[mutant.key]
        result.append(replace(mutant, change=f"{mutant.change} #{count}") if count > 1 else mutant)
    return result


def in_order(mutants: Iterable[Mutant], seed: int) -> list[Mutant]:
    """All of them, in the order of a run with `seed`: some faults of each file in turn, both by chance."""
    by_file: defaultdict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        by_file[mutant.path].append(mutant)
    for path, faults in by_file.items():
        random.Random(f"{seed} {path}").shuffle(faults)
    result: list[Mutant] = []
    turn = 0
    while len(result) < sum(map(len, by_file.values())):
        paths = sorted(by_file)
        random.Random(f"{seed} {turn}").shuffle(paths)
        for path in paths:
            result += by_file[path][turn * IN_TURN : (turn + 1) * IN_TURN]
        turn += 1
    return result
