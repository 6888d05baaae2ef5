"""Launches of ranks of which one differs: all end, with the reason."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from pathlib import Path

from rank_faults import FAULTS


def launch_all(times: int) -> int:
    """Launch each fault so often, one of each after another; the number that did not end as stated."""
    wrong, counts, start = 0, Counter[str](), time.monotonic()
    for number in range(times):
        for name, fault in FAULTS.items():
            with tempfile.TemporaryDirectory(prefix="bppsa-launch-") as folder:
                said = fault.wrong(Path(folder))
            counts[name] += 1
            if said:
                wrong += 1
                print(f"{name}, launch {number}: {said}", flush=True)
        print(f"{number + 1} of each of {len(FAULTS)} faults of ranks, {wrong} wrong", flush=True)
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    print(f"{counts.total()} launches, {wrong} wrong, seconds: {time.monotonic() - start:.0f}")
    return wrong
