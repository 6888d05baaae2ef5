"""Cases are played one after another in a forked child, under limits; one that ends the child is told too."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO

#: Address space that a child may take beside what it has, in bytes.
MEMORY = 1 << 30
#: Seconds that are waited for each of processor time, on a machine that does other work as well; and those of
#: one look at the child.
PATIENCE, LOOK = 6, 0.1
#: Cases after which a child is replaced: what one leaves behind cannot add up.
CASES = 2000


@dataclass(frozen=True)
class Played:
    """One case: "refused", "accepted", "wrong", "endless" or "died", and what is to say of it."""

    index: int
    outcome: str
    detail: str


class Child:
    """A forked process that plays cases by their index."""

    def __init__(self, play: Callable[[int], tuple[str, str]]) -> None:
        sys.stdout.flush()
        (asked, self._ask), (self._told, tell) = os.pipe(), os.pipe()
        self.cases = 0
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._ask)
            os.close(self._told)
            _be_a_child(play, os.fdopen(asked), os.fdopen(tell, "w"))
        os.close(asked)
        os.close(tell)

    def play(self, index: int, seconds: float) -> Played:
        """Play one case, in so many seconds of processor time; the child is gone where its outcome is
        "endless" or "died"."""
        self.cases += 1
        spent, waited = self._spent(), 0.0
        os.write(self._ask, f"{index}\n".encode())
        said = b""
        while not said.endswith(b"\n"):
            if not select.select([self._told], [], [], LOOK)[0]:
                waited += LOOK  # the clock would go on where both are stopped (SIGSTOP)
                if self._spent() - spent < seconds and waited < PATIENCE * seconds:
                    continue
                self.end(kill=True)
                return Played(index, "endless", f"no end in {seconds:g} s")
            if not (more := os.read(self._told, 1 << 16)):
                code = self.end()
                return Played(index, "died", signal.Signals(-code).name if code < 0 else f"exit code {code}")
            said += more
        return Played(index, *json.loads(said))

    def _spent(self) -> float:
        """Seconds of processor time that the child has taken."""
        with open(f"/proc/{self.pid}/stat", encoding="utf-8") as facts:
            fields = facts.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, *, kill: bool = False) -> int:
        """Let the child end, or kill it; how it ended."""
        if kill:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self._ask)
        os.close(self._told)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def play_all(
    play: Callable[[int], tuple[str, str]], indices: Iterable[int], seconds: float
) -> Iterator[Played]:
    """Every case in turn; one may take `seconds` of processor time."""
    child = None
    try:
        for index in indices:
            child = child or Child(play)
            played = child.play(index, seconds)
            if played.outcome in ("endless", "died"):
                child = None
            elif child.cases >= CASES:
                child.end()
                child = None
            yield played
    finally:
        if child is not None:
            child.end(kill=True)


def play_alone(play: Callable[[int], tuple[str, str]], index: int, seconds: float) -> Played:
    """One case in a child of its own."""
    return next(play_all(play, [index], seconds))


def _be_a_child(play: Callable[[int], tuple[str, str]], asked: IO[str], tell: IO[str]) -> None:
    code = 1
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        faulthandler.disable()  # the parent tells how a child ends
        with open("/proc/self/statm", encoding="ascii") as pages:
            taken = int(pages.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for line in asked:
            tell.write(json.dumps(play(int(line))) + "\n")
            tell.flush()
        code = 0
    finally:
        os._exit(code)
