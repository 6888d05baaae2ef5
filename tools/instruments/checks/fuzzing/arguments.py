"""Arguments of public callables: each set is refused by an error of ours, or taken to equal results twice."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import BppsaError
from fuzzing.calls import Call, calls
from fuzzing.children import Played, play_alone
from fuzzing.edits import fewest
from fuzzing.judging import judge
from fuzzing.values import changed, draw, near

#: Seconds of processor time that a case may take.
SECONDS = 5.0
#: A test that plays one call.
TEST = '''"""Found by `fuzz.py 1 --only arguments --seed {seed} --first {index} --cases 1`."""

from fuzzing.arguments import play


def test_arguments_{seed}_{index}(tmp_path):
    texts = {texts!r}
    outcome, why = play({name!r}, texts, tmp_path)
    assert outcome in ("refused", "accepted"), why
'''


class Arguments:
    """The cases of a seed: a callable, and one to three of its arguments changed."""

    subject, seconds = "arguments", SECONDS

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder = seed, folder
        self.calls = [(call, names) for call in calls(folder) if (names := call.parameters())]

    def _drawn(self, index: int) -> tuple[np.random.Generator, Call, list[str]]:
        """The generator of case `index`, its callable, and the names of its arguments."""
        rng = np.random.default_rng([self.seed, index])
        return rng, *self.calls[rng.integers(len(self.calls))]

    def kind(self, index: int) -> str:
        """What case `index` is counted by."""
        return self._drawn(index)[1].name

    def case(self, index: int) -> tuple[Call, dict[str, str]]:
        """The callable of case `index`, and the arguments that change, as texts."""
        rng, call, names = self._drawn(index)
        some = [names[k] for k in rng.permutation(len(names))[: int(rng.choice([1, 1, 1, 2, 3]))]]
        _, given = call.make()
        return call, {
            name: near(rng, f"given[{name!r}]", given[name])
            if name in given and rng.integers(2)
            else draw(rng)
            for name in some
        }

    def play(self, index: int) -> tuple[str, str]:
        """Call with case `index`'s arguments, twice where they are taken."""
        return play_call(*self.case(index), self.folder)

    def explain(self, played: Played) -> str:
        """Nothing explains a call that does not end well."""
        return ""

    def reproducer(self, played: Played, out: Path) -> str:
        """Write a test of the callable with the fewest arguments that fail alike; its path, and they."""
        call, texts = self.case(played.index)

        def fails(some: list[tuple[str, str]]) -> bool:
            play = lambda _: play_call(call, dict(some), self.folder)  # noqa: E731
            return play_alone(play, 0, SECONDS).outcome == played.outcome

        least = dict(fewest(list(texts.items()), fails))
        path = out / f"test_arguments_{self.seed}_{played.index}.py"
        text = TEST.format(seed=self.seed, index=played.index, name=call.name, texts=least)
        path.write_text(text, encoding="utf-8")
        return f"{path}: {call.name}({', '.join(f'{name}={text}' for name, text in least.items())})"


def play(name: str, texts: dict[str, str], folder: Path) -> tuple[str, str]:
    """Call `name` of `calls` with the arguments `texts`."""
    return play_call(next(call for call in calls(folder) if call.name == name), texts, folder)


def play_call(call: Call, texts: dict[str, str], folder: Path) -> tuple[str, str]:
    """Call, in `folder`, with the arguments that `texts` change, twice where they are taken."""
    results: list[str] = []

    def once() -> None:
        function, given = call.make()
        arguments = changed(given, texts)
        try:
            results.append(digest(function(**arguments)))
        except MemoryError as error:  # stated: a command tells it on one line
            raise BppsaError("too little memory") from error

    place = os.getcwd()
    os.chdir(folder)  # for what is written by a relative path
    try:
        outcome, detail = judge(once, "")
        if outcome == "accepted":
            outcome, detail = judge(once, "")
            if outcome != "accepted":
                return "wrong", f"taken at first, and then {outcome}: {detail}"
            if results[0] != results[1]:
                return "wrong", "two equal calls gave other results"
        return outcome, detail
    finally:
        os.chdir(place)


def digest(value: Any) -> str:
    """A text that equal results share."""
    state = hashlib.sha256()

    def add(item: Any, depth: int) -> None:
        state.update(type(item).__name__.encode())
        if isinstance(item, Pattern):
            state.update(item.digest.encode())
        elif scipy.sparse.issparse(item):
            add([item.shape, item.data, item.indices, item.indptr], depth)
        elif isinstance(item, np.ndarray):
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
