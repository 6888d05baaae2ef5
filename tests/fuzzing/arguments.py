"""Arguments of public callables: each set is refused by an error of ours, or taken to equal results twice."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.errors import BppsaError
from fuzzing.calls import Call, calls
from fuzzing.children import Played, play_alone
from fuzzing.edits import fewest
from fuzzing.judging import judge
from fuzzing.values import draw, near

#: Seconds of processor time that a case may take.
SECONDS = 5.0


class Arguments:
    """The cases of a seed: a callable, and one to three of its arguments changed."""

    subject, seconds = "arguments", SECONDS

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder = seed, folder
        self.calls = [(call, call.parameters()) for call in calls(folder)]

    def _drawn(self, index: int) -> tuple[np.random.Generator, Call, list[str]]:
        """The generator of case `index`, its callable, and the names of the arguments that change."""
        rng = np.random.default_rng([self.seed, index])
        able = [pair for pair in self.calls if pair[1]]
        call, names = able[rng.integers(len(able))]
        some = rng.permutation(len(names))[: int(rng.choice([1, 1, 1, 2, 3]))]
        return rng, call, [names[k] for k in some]

    def kind(self, index: int) -> str:
        """What case `index` is counted by."""
        return self._drawn(index)[1].name

    def play(self, index: int) -> tuple[str, str]:
        """Call with case `index`'s arguments, twice where they are taken."""
        rng, call, names = self._drawn(index)
        seeds = {name: int(rng.integers(2**32)) for name in names}
        return self.call(call, seeds)

    def call(self, call: Call, seeds: dict[str, int]) -> tuple[str, str]:
        """Call with the arguments that `seeds` change."""
        results = []
        os.chdir(self.folder)  # for what is written by a relative path

        def once() -> None:
            function, given = call.make()
            for name, seed in seeds.items():
                rng = np.random.default_rng(seed)
                given[name] = near(rng, given[name]) if name in given and rng.integers(2) else draw(rng)
            try:
                results.append(digest(function(**given)))
            except MemoryError as error:  # stated: a command tells it on one line
                raise BppsaError("too little memory") from error

        outcome, detail = judge(once, "")
        if outcome == "accepted":
            outcome, detail = judge(once, "")
            if outcome != "accepted":
                return "wrong", f"taken at first, and then {outcome}: {detail}"
            if results[0] != results[1]:
                return "wrong", "two equal calls gave other results"
        return outcome, detail

    def explain(self, played: Played) -> str:
        """Nothing explains a call that does not end well."""
        return ""

    def reproducer(self, played: Played, out: Path) -> str:
        """The callable and the fewest arguments that fail alike."""
        rng, call, names = self._drawn(played.index)
        seeds = [(name, int(rng.integers(2**32))) for name in names]

        def fails(some: list[tuple[str, int]]) -> bool:
            return play_alone(lambda _: self.call(call, dict(some)), 0, SECONDS).outcome == played.outcome

        _, given = call.make()
        said = []
        for name, seed in fewest(seeds, fails):
            own = np.random.default_rng(seed)
            value = near(own, given[name]) if name in given and own.integers(2) else draw(own)
            said.append(f"{name}={value!r:.200}")
        return f"{call.name}({', '.join(said)})"


def digest(value: Any) -> str:
    """A text that equal results share."""
    state = hashlib.sha256()

    def add(item: Any, depth: int) -> None:
        state.update(type(item).__name__.encode())
        if isinstance(item, np.ndarray):
            state.update(f"{item.shape} {item.dtype}".encode() + item.tobytes())
        elif isinstance(item, (list, tuple)) and depth < 4:
            for one in item:
                add(one, depth + 1)
        elif isinstance(item, dict) and depth < 4:
            for name, one in item.items():
                state.update(repr(name).encode())
                add(one, depth + 1)
        elif isinstance(item, (int, float, str, np.generic)):
            state.update(repr(item).encode())

    add(value, 0)
    return state.hexdigest()
