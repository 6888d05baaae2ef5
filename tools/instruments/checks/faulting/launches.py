"""Launches of ranks of which one differs: all end, with the reason."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rank_faults import FAULTS


def launch_all(times: int, beginnings: Sequence[str] = ("",)) -> int:
    """Launch each fault whose name begins with one of `beginnings` so often, one of each after another; the
    number that did not end as stated. Prints counts, and what the longest launch of each took."""
    chosen = {name: fault for name, fault in FAULTS.items() if name.startswith(tuple(beginnings))}
    if not chosen:
        raise SystemExit(f"no fault of ranks begins with {list(beginnings)}: there are {', '.join(FAULTS)}")
    wrong, counts, start = 0, Counter[str](), time.monotonic()
    longest = dict.fromkeys(chosen, 0.0)
    for number in range(times):
        for name, fault in chosen.items():
            with tempfile.TemporaryDirectory(prefix="bppsa-launch-") as folder:
                began = time.monotonic()
                said = fault.wrong(Path(folder))
                longest[name] = max(longest[name], time.monotonic() - began)
            counts[name] += 1
            if said:
                wrong += 1
                print(f"{name}, launch {number}: {said}", flush=True)
        print(f"{number + 1} of each of {len(chosen)} faults of ranks, {wrong} wrong", flush=True)
    print(", ".join(f"{count} {name} (at most {longest[name]:.1f} s)" for name, count in counts.items()))
    print(f"{counts.total()} launches, {wrong} wrong, seconds: {time.monotonic() - start:.0f}")
    return wrong
