"""Walk random sequences by Newton's iteration with forced chunks: so many walks, or until time is over.

Prints a seed and counts: walks that converged, those that fell back to the serial pass, and those whose
states are further from the serial pass's than is promised, by cell and dtype. The exit code is 1 where one
is.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from collections import Counter

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):  # children are forked
    os.environ[name] = "1"
os.environ["NUMBA_THREADING_LAYER"] = "workqueue"

import on_path  # noqa: E402, F401
from fuzzing.children import play_all  # noqa: E402
from newton_walks import draw_walk, excess, walk_by_newton  # noqa: E402

#: Walks of one case, and the processor seconds it may take, compilation of kernels included.
TOGETHER, SECONDS = 100, 300.0


def walk_some(seed: int, case: int) -> tuple[str, str]:
    """Counts of TOGETHER walks by cell, dtype and outcome, and the walks that are beyond what is promised."""
    counts: Counter[str] = Counter()
    wrong, worst = [], 0.0
    for index in range(case * TOGETHER, (case + 1) * TOGETHER):
        drawn = draw_walk(seed, index)
        ours, report = walk_by_newton(drawn)
        beyond = excess(ours, drawn.walk, drawn.chunk, report)
        outcome = (
            "fallen back" if not report.converged else "to the bit" if report.error == 0 else "tolerated"
        )
        if not beyond <= 1:
            outcome = "beyond"
            wrong.append((index, beyond, f"{report}"))
        elif outcome == "tolerated":
            worst = max(worst, beyond)
        counts[f"{drawn.cell} {drawn.walk.state.dtype} {outcome}"] += 1
    return "walked", json.dumps((counts, wrong, worst))


def main() -> int:
    """0 where every walk keeps what is promised, 1 where one does not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("walks", type=int, nargs="?", default=100_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="at most")
    parser.add_argument("--seed", type=int, help="default: a new one")
    parser.add_argument("--first", type=int, default=0, help="the first walk's number, to go on with a run")
    args = parser.parse_args()
    seed = secrets.randbelow(2**32) if args.seed is None else args.seed
    counts: Counter[str] = Counter()
    well, worst, start, played = True, 0.0, time.monotonic(), args.first
    print(f"seed {seed}, from walk {args.first}", flush=True)
    cases = range(args.first // TOGETHER, -(-(args.first + args.walks) // TOGETHER))
    for one in play_all(lambda case: walk_some(seed, case), cases, SECONDS):
        played = (one.index + 1) * TOGETHER
        if one.outcome != "walked":
            print(f"  walks {one.index * TOGETHER} to {played}: {one.outcome}, {one.detail}", flush=True)
            well = False
            continue
        found, wrong, close = json.loads(one.detail)
        counts.update(found)
        worst = max(worst, close)
        for index, beyond, report in wrong:
            well = False
            print(f"  walk {index}: {beyond:.3g} times what is promised; {report}", flush=True)
        if time.monotonic() - start > args.seconds:
            break
    outcomes = ("to the bit", "tolerated", "fallen back", "beyond")
    kinds = sorted({kind.rsplit(" ", len(outcome.split()))[0] for kind in counts for outcome in outcomes
                    if kind.endswith(f" {outcome}")})  # fmt: skip
    for kind in kinds:
        print(f"  {kind}: " + ", ".join(f"{counts[f'{kind} {outcome}']} {outcome}" for outcome in outcomes))
    total = {outcome: sum(counts[f"{kind} {outcome}"] for kind in kinds) for outcome in outcomes}
    print(
        f"newton, seed {seed}: {sum(total.values())} walks, "
        + ", ".join(f"{total[outcome]} {outcome}" for outcome in outcomes)
        + f"; the largest tolerated error is {worst:.2g} of the tolerance; seconds: "
        f"{time.monotonic() - start:.0f}; go on with --first {played}"
    )
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
