"""Put small faults into the code, one at a time, and see that a test fails, until the time is over.

A fault is killed by a test that fails, does not end, or ends its process; one that survives and is not
listed as equivalent in mutating/equivalent.txt is told, and the exit code is 1. Outcomes are kept in
out/mutants by seed: a run with the same seed goes on where the one before it ended.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
from pathlib import Path

# Child processes are forked, which threads that wait in the parent and GNU's OpenMP do not stand.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["NUMBA_THREADING_LAYER"] = "workqueue"
os.environ["BPPSA_QUIET"] = "1"

import on_path  # noqa: E402, F401
import pytest  # noqa: E402
from mutating import in_kernels, in_python  # noqa: E402
from mutating.kernels import play_kernels  # noqa: E402
from mutating.mutant import ROOT, Mutant, in_order  # noqa: E402
from mutating.playing import Player  # noqa: E402
from mutating.subjects import FITTED, PYTHON  # noqa: E402
from mutating.told import Outcomes  # noqa: E402

KERNELS = "kernels"
#: Tests that take no part: of CUDA texts; those whose threads launch at once, which Numba's queue ends.
NOT_HERE = "not emulated and not cuda and not same_time"


def faults_of(subject: str) -> list[Mutant]:
    """All that may be done to a subject."""
    if subject == KERNELS:
        return in_kernels.all_faults()
    sources = PYTHON[subject].sources()
    return [mutant for path in sources for mutant in in_python.faults_of(path, path in FITTED)]


def play(subject: str, seconds: float, seed: int, out: Path, tests: list[Path]) -> bool:
    """Faults of one subject, by its tests or these; whether each was seen, or is known to change nothing."""
    mutants, outcomes = in_order(faults_of(subject), seed), Outcomes(out, subject, seed)
    if subject == KERNELS:
        play_kernels(mutants, outcomes, seconds)
    else:
        chosen = PYTHON[subject]
        player = Player(chosen.sources(), mutants, outcomes, seconds, out / f"recorded-{subject}.json")
        with tempfile.TemporaryDirectory(prefix="bppsa-mutants-") as folder:
            options = ["-sq", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", NOT_HERE,
                       "--hypothesis-profile=mutants", f"--basetemp={folder}/pytest"]  # fmt: skip
            code = pytest.main([*options, *map(str, tests or chosen.test_files())], plugins=[player])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):  # none is run here
            raise SystemExit(f"{subject}: pytest ended with {code!r}")
    return outcomes.tell(mutants)


def main() -> int:
    """0 where every fault was seen, 1 where one was not."""
    subjects = (*PYTHON, KERNELS)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "seconds", type=float, help="shared by the subjects, beside what a first run takes to record tests"
    )
    parser.add_argument("--only", choices=subjects, help="this subject alone")
    parser.add_argument("--seed", type=int, help="of the order (default: a new one)")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "mutants", help="for outcomes")
    parser.add_argument("--tests", type=Path, nargs="+", default=[], help="files of tests, for the subject's")
    args = parser.parse_args()
    seed = secrets.randbelow(2**32) if args.seed is None else args.seed
    chosen = [args.only] if args.only else list(subjects)
    print(f"seed {seed}", flush=True)
    well = [play(subject, args.seconds / len(chosen), seed, args.out, args.tests) for subject in chosen]
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main())
