"""Disturb every command that writes files, and check what it leaves, until each was disturbed so often.

Kills, SIGTERM and Ctrl-C at random moments, a full disk, a folder that takes no file, little address space,
two writers of one file, a reader beside a writer. Prints the seed and counts; the exit code is 1 where an
outcome is none of those stated. With --launches it is ranks that are launched, of which one differs.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

# Commands are forked, which threads that wait in the parent and GNU's OpenMP do not stand.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"
os.environ |= {"NUMBA_THREADING_LAYER": "workqueue", "BPPSA_QUIET": "1"}

import librosa  # noqa: E402, F401
import numpy as np  # noqa: E402
import on_path  # noqa: E402, F401
import soundfile  # noqa: E402, F401
from faulting import limits, sharing  # noqa: E402
from faulting.commands import COMMANDS, furnish  # noqa: E402
from faulting.launches import launch_all  # noqa: E402
from faulting.running import in_peace  # noqa: E402
from faulting.stops import stop  # noqa: E402
from matplotlib import pyplot  # noqa: E402, F401

#: What is done to a command, and how many times as often as a kill.
FAULTS = {
    "kill": (partial(stop, number=signal.SIGKILL), 1.0),
    "SIGTERM": (partial(stop, number=signal.SIGTERM), 0.25),
    "Ctrl-C": (partial(stop, number=signal.SIGINT), 0.5),
    "full disk": (limits.full_disk, 0.25),
    "no permission": (limits.no_permission, 0.0),
    "little memory": (limits.little_memory, 0.5),
    "two writers": (sharing.two_writers, 0.1),
}


def main() -> int:
    """0 where every outcome was one of those stated, 1 where one was not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kills", type=int, nargs="?", default=0, help="of each command; others in proportion")
    parser.add_argument("--launches", type=int, help="of each fault of ranks, in place of commands")
    parser.add_argument(
        "--beginning", nargs="+", default=[""], metavar="NAME", help="faults of ranks so called alone"
    )
    parser.add_argument("--seed", type=int, help="of the moments and sizes (default: a new one)")
    parser.add_argument("--only", choices=FAULTS, help="this fault alone")
    parser.add_argument("--command", choices=[command.name for command in COMMANDS], help="this one alone")
    args = parser.parse_args()
    if args.launches is not None:
        return 1 if launch_all(args.launches, args.beginning) else 0
    seed = secrets.randbelow(2**32) if args.seed is None else args.seed
    rng, counts, wrong, start = np.random.default_rng(seed), Counter(), 0, time.monotonic()
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="bppsa-faults-") as place:
        furnished, folder = Path(place, "furnished"), Path(place, "work")
        furnished.mkdir()
        furnish(furnished)
        for command in COMMANDS if args.command is None else [c for c in COMMANDS if c.name == args.command]:
            peace = in_peace(command, furnished, folder)
            for name, (act, share) in FAULTS.items():
                for _ in range(max(1, round(args.kills * share)) if args.only in (None, name) else 0):
                    outcome = act(command, peace, furnished, folder, rng=rng)
                    kind, _, why = outcome.partition(": ")
                    counts[command.name, name, kind] += 1
                    if kind == "wrong":
                        wrong += 1
                        print(f"{command.name}, {name}: {why}", flush=True)
            told = ", ".join(
                f"{count} {fault} {kind}"
                for (who, fault, kind), count in counts.items()
                if who == command.name
            )
            print(f"{command.name} ({peace.seconds:.2f} s): {told}", flush=True)
        if args.only is None and args.command is None:
            shared = Path(place, "shared")
            shared.mkdir()
            outcome = sharing.reader_beside_a_writer(shared)
            wrong += outcome != "done"
            print(f"a reader beside a writer: {outcome}")
    totals = Counter()
    for (_, fault, kind), number in counts.items():
        totals[fault, kind] += number
    print(", ".join(f"{number} {fault} {kind}" for (fault, kind), number in totals.items()))
    print(
        f"seed {seed}: {sum(counts.values())} tried, {wrong} wrong, seconds: {time.monotonic() - start:.0f}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
