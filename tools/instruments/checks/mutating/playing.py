"""Faults of Python functions, each put into a forked process that runs the tests that reach its line.

mutmut puts switches into modules, which Numba's functions and those it hands to kernels do not take, and
cosmic-ray writes each fault into the checkout and starts pytest anew; neither draws by a seed nor ends with
the time. Here pytest collects once, and a fault costs a fork and its tests: a twentieth of a start.
"""

from __future__ import annotations

import functools
import re
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from fuzzing.children import play_alone

from mutating.in_functions import Functions
from mutating.likely import Likely
from mutating.mutant import ROOT, Mutant
from mutating.recording import Lines, Recorded, lines_run
from mutating.told import Outcomes

#: Processor seconds of a test that takes part, and of all tests of a fault; how many times as many there are
#: for one that has survived before.
LONGEST, TOGETHER = 2.0, 6.0
AGAIN = 10
#: Those that a test may take beyond five times its own, in which Numba may compile for another dtype; and
#: where the fault is in a function that Numba compiles, with all that call it.
BEYOND, COMPILING = 20.0, 90.0
#: Tests that have seen faults near by and come before the quickest; the seconds of any test beside its own.
FIRST, OTHERS = 6, 0.05


class Player:
    """A plugin of pytest that plays faults in place of running the tests it has collected."""

    def __init__(
        self, sources: list[str], mutants: list[Mutant], outcomes: Outcomes, seconds: float, kept: Path
    ) -> None:
        """kept: the file of what is recorded of tests."""
        self._sources, self._mutants, self._outcomes = sources, mutants, outcomes
        self._seconds, self._kept = seconds, kept
        self._fit: dict[str, bool] = {}
        self._likely = Likely()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("tests cannot be collected")
        self._items = {item.nodeid: item for item in session.items}
        recorded = Recorded(self._kept, self._sources)
        for file in dict.fromkeys(item.path for item in session.items):
            recorded.of(file, lambda file=file: self._record(file))
        self._tests = {name: test for name, test in recorded.tests.items() if name in self._items}
        functions, start = Functions(set(self._sources)), time.monotonic()
        for mutant, name in self._outcomes.seen_by(self._mutants):
            self._likely.add(mutant, name)
        for mutant in _compiled_last(functions, self._outcomes.left(self._mutants)):
            if time.monotonic() - start > self._seconds:
                break
            outcome, detail = self._play(functions, mutant)
            self._outcomes.add(mutant, outcome, detail)
            if outcome == "killed":
                self._likely.add(mutant, detail)
        return True

    def _record(self, file: Path) -> dict[str, tuple[float, Lines]]:
        found = {}
        for name, item in self._items.items():
            if item.path == file:
                found[name] = lines_run(self._sources, lambda item=item: self._run_here(item))
                if not self._fit[name]:
                    del found[name]
        return found

    def _run_here(self, item: pytest.Item) -> None:
        """A test in this process, where it leaves kernels loaded for those that are forked; tests that fail
        or are skipped take no part."""
        self._fit[item.nodeid] = _passes(item)

    def _play(self, functions: Functions, mutant: Mutant) -> tuple[str, str]:
        """What becomes of a fault. A test that has seen one is run here without it, if it was not yet."""
        more = AGAIN if self._outcomes.survived(mutant) else 1
        chosen = self._choose(functions, mutant, more)
        while True:
            outcome, detail = self._meet(functions, mutant, chosen)
            if outcome == "killed" and detail not in self._fit:
                self._run_here(self._items[detail])
            if outcome != "killed" or self._fit[detail]:
                return outcome, detail
            chosen.remove(detail)

    def _meet(self, functions: Functions, mutant: Mutant, chosen: list[str]) -> tuple[str, str]:
        """What these tests make of a fault, in a process of its own."""
        beyond = COMPILING if functions.compiled_at(mutant) else BEYOND

        def play(_: int) -> tuple[str, str]:
            try:
                if not functions.put(mutant):
                    return "survived", "as no function holds it"
            except ValueError as error:  # a live function's variables of enclosing scopes are as they are
                return "does not compile", str(error)
            for name in chosen:
                signal.setitimer(signal.ITIMER_PROF, beyond + 5 * self._tests[name][0])
                if not _passes(self._items[name]):
                    return "killed", name
            return "survived", f"{len(chosen)} tests"

        limit = sum(beyond + 5 * self._tests[name][0] for name in chosen) + beyond
        played = play_alone(play, 0, limit)
        if (played.outcome == "died" and played.detail == signal.SIGPROF.name) or played.outcome == "endless":
            return "timed out", played.detail
        if played.outcome == "died":
            return "crashed", played.detail
        return played.outcome, played.detail

    def _choose(self, functions: Functions, mutant: Mutant, more: int) -> list[str]:
        """The quickest tests that reach a fault's lines, or where Numba compiled these, lines that call them
        or call them themselves, in `more` times the usual seconds; first those that have seen faults near
        by."""
        compiled = functions.compiled_at(mutant)
        wanted = (
            self._lines_that_call(compiled)
            if compiled
            else {mutant.path: set(range(mutant.line, mutant.end + 1))}
        )
        reach = [
            (seconds, name)
            for name, (seconds, lines) in self._tests.items()
            if any(not wanted[path].isdisjoint(lines.get(path, ())) for path in wanted)
            or (compiled and re.search(rf"\b{compiled}\(", _text_of(self._items[name].path)))
        ]
        turns: Counter[str] = Counter()  # those of one test with other parameters wait
        ordered = []
        for seconds, name in sorted(reach):
            test = name.partition("[")[0]
            ordered.append(((1 + turns[test]) * (seconds + OTHERS), seconds, name))
            turns[test] += 1
        chosen, total = [], 0.0
        for _, seconds, name in sorted(ordered):
            if seconds > more * LONGEST or total + seconds > more * TOGETHER or not self._fit.get(name, True):
                continue
            total += seconds
            chosen.append(name)
        weights = self._likely.weights(mutant)
        worth = {name: weights[name] / (self._tests[name][0] + OTHERS) for name in chosen if weights[name]}
        first = sorted(worth, key=lambda name: -worth[name])[:FIRST]
        return first + [name for name in chosen if name not in first]

    def _lines_that_call(self, name: str) -> dict[str, set[int]]:
        """Lines that name a compiled function, or one in whose lines it is named, and so on."""
        names, lines = {name}, {}
        while True:
            named = re.compile(rf"\b({'|'.join(names)})\(")
            more = set(names)
            for path in self._sources:
                within = ""
                lines[path] = set()
                for number, line in enumerate(Path(ROOT, path).read_text(encoding="utf-8").splitlines(), 1):
                    if defined := re.match(r"def (\w+)\(", line):
                        within = defined[1]
                    elif named.search(line):
                        lines[path].add(number)
                        if Path(path).name in ("loops.py", "bit_sets.py"):
                            more.add(within)
            if more == names:
                return lines
            names = more


@functools.cache
def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _compiled_last(functions: Functions, mutants: Iterable[Mutant]) -> Iterator[Mutant]:
    """The faults of functions that Numba compiles after all others, of which one takes the time of many."""
    later = []
    for mutant in mutants:
        if functions.compiled_at(mutant):
            later.append(mutant)
        else:
            yield mutant
    yield from later


def _passes(item: pytest.Item) -> bool:
    """Whether a test runs and passes."""
    reports = runtestprotocol(item, log=False, nextitem=None)
    return all(
        report.passed or (report.outcome == "skipped" and hasattr(report, "wasxfail")) for report in reports
    )
