"""Faults of one rank that would leave the others waiting: how each is launched, and how it is to end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import mpi
import rank_kills

TRAIN = f"{Path(sys.executable).with_name('bppsa-train')} {' '.join(rank_kills.OPTIONS)}"
#: Ranks by what they share, in `ranks_callbacks.py`.
WAYS = {"layers": 2, "batch": 2, "time": 2, "pipeline": 2, "batch:2,layers:2": 4}
#: What an error says of a rank's call.
CALL = r"(makes \w+|waits for a message) .*at ranks_callbacks.py"


@dataclass(frozen=True)
class Fault:
    """A launch of ranks of which one differs.

    ranks      how many
    arguments  of `ranks_callbacks.py`; for a command of rank 1 in place of training none
    odd        that command
    words      a pattern of what is said; of what all do well the steps that each rank counts
    soon       seconds in which all end, imports and what the fault waits for included
    interrupt  whether Ctrl-C comes after 2 s
    """

    ranks: int
    words: str
    soon: float
    arguments: tuple[str, ...] = ()
    odd: str = ""
    interrupt: bool = False
    environment: dict[str, str] = field(default_factory=dict)

    def wrong(self, folder: Path) -> str:
        """Launch it, and say what is wrong with its end; "" for nothing."""
        if self.odd:
            (folder / "broken").mkdir(exist_ok=True)
            (folder / "broken" / "h5py.py").write_text("raise ImportError('no such library')\n")
            command = f"if [ $PMI_RANK = 1 ]; then {self.odd}; else {TRAIN} --ranks layers; fi"
            process = subprocess.Popen(
                [mpi.MPIEXEC, "-n", str(self.ranks), "sh", "-c", command],
                env=os.environ | {"NUMBA_NUM_THREADS": "1"} | self.environment,
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                start_new_session=True,
            )
        else:
            process = mpi.start(self.ranks, "ranks_callbacks.py", *self.arguments)
        if self.interrupt:
            time.sleep(2)
            process.send_signal(signal.SIGINT)
        try:
            ended = mpi.finish(process, limit=3 * self.soon)
        except AssertionError as hung:
            return str(hung)
        stops = self.arguments[1:2] == ("stop",)
        said = ended.stdout if stops else ended.stderr
        if (ended.returncode == 0) != stops or not re.search(self.words, said) or ended.seconds > self.soon:
            return (
                f"it ended with {ended.returncode} after {ended.seconds:.1f} s: {ended.stdout}{ended.stderr}"
            )
        return ""


def _before_ranks(odd: str, words: str, *, interrupt: bool = False, ranks: int = 2) -> Fault:
    seconds = "30" if odd.startswith(("/", "env")) else "4"
    return Fault(ranks, words, 15, odd=odd, interrupt=interrupt, environment={"BPPSA_MPI_SECONDS": seconds})


def _callback(over: str, what: str, rank: int) -> Fault:
    ranks = WAYS[over]
    if what == "stop":
        words = rf"\A(6\n){{{ranks}}}\Z"
    else:
        differ = rf"(ranks differ in call \d+|ranks wait for each other).*rank 0 {CALL}.*rank 1 {CALL}"
        words = rf"\Aerror: rank \d: {differ}.*the same calls.*\n\Z"
    return Fault(ranks, words, 10 + 2 * ranks, (over, what, str(rank)))


#: Of a rank that ends before all are ranks, and of callbacks that differ by rank.
FAULTS = {
    "without --ranks": _before_ranks(TRAIN, "rank 1: mpiexec started 2 processes, and without --ranks"),
    "a mistyped option": _before_ranks(f"{TRAIN} --rank layers --epoch x", "argument --epochs: 'x' is no"),
    "a failed import": _before_ranks(
        f"env PYTHONPATH=broken {TRAIN} --ranks layers", "no such library\nerror: rank 1 has failed"
    ),
    "differing options": _before_ranks(
        f"{TRAIN} --ranks layers --seed 1",
        r"\Aerror: rank \d: ranks 0 and 1 differ in --seed: '0' and '1'; .*\n\Z",
        ranks=3,
    ),
    "an end before MPI": _before_ranks(
        "exit 3", "rank 0: MPI has not begun within 4 s: another rank has ended"
    ),
    "Ctrl-C before MPI": _before_ranks("sleep 60", "", interrupt=True),
    **{f"{over}, stop 1": _callback(over, "stop", 1) for over in WAYS},
    **{f"{over}, call {rank}": _callback(over, "call", rank) for over in WAYS for rank in (0, 1)},
    **{f"{over}, end 1": _callback(over, "end", 1) for over in WAYS},
}
