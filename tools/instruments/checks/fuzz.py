"""Play mutated files, odd arguments, and property tests on new examples, until the time is over.

Each subject prints its seed and counts. A file or call that is neither refused by name nor taken, in the
stated time and memory, is told with its fewest edits or arguments, and the exit code is 1.
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
from contextlib import suppress
from itertools import count
from pathlib import Path

# Child processes are forked, which threads that wait in the parent and GNU's OpenMP do not stand.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["NUMBA_THREADING_LAYER"] = "workqueue"

from fuzzing.arguments import Arguments  # noqa: E402
from fuzzing.children import play_all  # noqa: E402
from fuzzing.files import Files  # noqa: E402
from fuzzing.properties import ROOT, play_rounds  # noqa: E402

SUBJECTS = {"files": Files, "arguments": Arguments}
#: Cases that are told of each place that fails.
TOLD = 1


def play(subject: str, seconds: float, seed: int, cases: int | None, first: int, out: Path) -> bool:
    """Cases of one subject until the time is over, or so many; whether every one ended well."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="bppsa-fuzz-", dir=place) as folder:
        played = SUBJECTS[subject](seed, Path(folder))
        counts, kinds, told = Counter(), Counter(), Counter()
        start = time.monotonic()
        indices = range(first, first + cases) if cases else count(first)
        with suppress(KeyboardInterrupt):  # what was played until then is told
            for one in play_all(played.play, indices, played.seconds):
                outcome, why = one.outcome, one.detail
                if outcome not in ("refused", "accepted"):
                    why = played.explain(one)
                    outcome = "explained" if why else "unexplained"
                counts[outcome] += 1
                kinds[played.kind(one.index), outcome] += 1
                if outcome == "unexplained":
                    ended = played.kind(one.index) if one.outcome in ("died", "endless") else ""
                    place = ended + one.detail.rpartition(" (")[2]
                    told[place] += 1
                    if told[place] <= TOLD:
                        out.mkdir(parents=True, exist_ok=True)
                        print(f"  case {one.index}, {one.outcome}: {one.detail}")
                        print(f"    {played.reproducer(one, out)}", flush=True)
                if one.index in (first + 10, first + 100) or one.index % 10_000 == 0:
                    print(f"  {one.index - first} cases in {time.monotonic() - start:.0f} s", flush=True)
                if not cases and time.monotonic() - start > seconds:
                    break
    for name in sorted({kind for kind, _ in kinds}):
        row = ", ".join(
            f"{kinds[name, outcome]} {outcome}" for outcome in sorted(counts) if kinds[name, outcome]
        )
        print(f"  {name}: {row}")
    tried = sum(counts.values())
    row = ", ".join(f"{counts[name]} {name}" for name in ("refused", "accepted", "explained", "unexplained"))
    print(
        f"{subject}, seed {seed}: {tried} tried, {row}, seconds: {time.monotonic() - start:.0f}", flush=True
    )
    return not counts["unexplained"]


def main() -> int:
    """0 where all ended well, 1 where something did not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float, help="shared by the subjects")
    parser.add_argument("-n", "--workers", type=int, default=2, help="of the property tests")
    parser.add_argument("--only", choices=(*SUBJECTS, "properties"), help="this subject alone")
    parser.add_argument("--seed", type=int, help="of files and arguments (default: a new one)")
    parser.add_argument("--cases", type=int, help="of files and arguments: so many, whatever the time")
    parser.add_argument("--first", type=int, default=0, help="the first case's number")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "fuzz", help="for files that fail")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    subjects = [args.only] if args.only else [*SUBJECTS, "properties"]
    share, well = args.seconds / len(subjects), True
    for subject in subjects:
        if subject == "properties":
            well &= play_rounds(share, args.workers)
        else:
            seed = secrets.randbelow(2**32) if args.seed is None else args.seed
            well &= play(subject, share, seed, args.cases, args.first, args.out)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
