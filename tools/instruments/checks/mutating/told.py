"""What became of faults: outcomes by seed, kept on disk, and the list of equivalent ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from mutating.mutant import Mutant

#: How a fault is seen; and all that may become of one.
SEEN = ("killed", "timed out", "crashed")
OUTCOMES = (*SEEN, "does not compile", "equivalent", "survived")
EQUIVALENT = Path(__file__).with_name("equivalent.txt")


def read_equivalent(path: Path = EQUIVALENT) -> dict[str, str]:
    """Reasons by key. A key is a line that begins at the margin, its reason the indented lines below it; the
    reason of several keys in a row is that below the last."""
    reasons: dict[str, str] = {}
    waiting: list[str] = []
    reason: list[str] = []
    for line in [*path.read_text(encoding="utf-8").splitlines(), "end"]:
        if line.startswith("#") or not line.strip():
            continue
        if line.startswith(" "):
            reason.append(line.strip())
            continue
        if reason:
            reasons |= dict.fromkeys(waiting, " ".join(reason))
            waiting, reason = [], []
        waiting.append(line)
    assert waiting == ["end"], f"{path.name}: no reason behind {waiting[0]}"
    return reasons


class Outcomes:
    """Outcomes by key, of runs with one seed: a run goes on where the one before it ended. Faults that have
    survived are tried again, since there may be other tests by now."""

    def __init__(self, folder: Path, name: str, seed: int) -> None:
        self._file = folder / f"{name}-{seed}.jsonl"
        self._name, self._seed = name, seed
        self._equivalent = read_equivalent()
        self._told: dict[str, tuple[str, str]] = {}
        if self._file.exists():
            for line in self._file.read_text(encoding="utf-8").splitlines():
                key, outcome, detail = json.loads(line)
                self._told[key] = outcome, detail

    def add(self, mutant: Mutant, outcome: str, detail: str) -> None:
        assert outcome in OUTCOMES
        self._told[mutant.key] = outcome, detail
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with open(self._file, "a", encoding="utf-8") as file:
            file.write(json.dumps((mutant.key, outcome, detail)) + "\n")

    def seen_by(self, mutants: Iterable[Mutant]) -> Iterator[tuple[Mutant, str]]:
        """Those that were killed, with what is told of each."""
        for mutant in mutants:
            outcome, detail = self._told.get(mutant.key, ("", ""))
            if outcome == "killed":
                yield mutant, detail

    def survived(self, mutant: Mutant) -> bool:
        """Whether a run before this one saw no test fail."""
        return self._told.get(mutant.key, ("", ""))[0] == "survived"

    def left(self, mutants: Iterable[Mutant]) -> list[Mutant]:
        """Those to try: the survivors of earlier runs first."""
        known = {mutant.key: self._told.get(mutant.key, ("", ""))[0] for mutant in mutants}
        again = [
            mutant
            for mutant in mutants
            if known[mutant.key] == "survived" and mutant.key not in self._equivalent
        ]
        return again + [mutant for mutant in mutants if not known[mutant.key]]

    def tell(self, mutants: Iterable[Mutant]) -> bool:
        """Print the counts of all that was tried with this seed, what survived, and what is listed as
        equivalent and was seen; whether there was neither."""
        counts: Counter[str] = Counter()
        faults, well = 0, True
        for mutant in mutants:
            faults += 1
            outcome, detail = self._told.get(mutant.key, ("", ""))
            listed = mutant.key in self._equivalent
            if outcome == "survived" and listed:
                outcome = "equivalent"
            elif outcome == "survived" or (listed and outcome in SEEN):
                well = False
                print(f"  {'listed as equivalent, ' if listed else ''}{outcome}, {detail}: {mutant.key}")
            counts[outcome] += 1
        row = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)
        tried = faults - counts[""]
        print(f"{self._name}, seed {self._seed}: {tried} of {faults} tried, {row}", flush=True)
        return well
