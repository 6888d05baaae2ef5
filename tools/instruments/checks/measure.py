"""Measure what docs/reliability.md says of numbers, and write it to docs/results/numbers.json.

Errors of float32 by layer, and their growth with depth, T and H; bits by the number of threads; memory over
10,000 training steps; chains of 30,000 steps at spectral radius 1.5. Some minutes; the exit code is 1 where a
promise of tests/laws/test_numbers.py does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from measuring import chains, memory, threads
from measuring.errors import BOUNDS, GROWTH, Errors, errors, power, worst

from bppsa_cupy.devices import get_device
from bppsa_cupy.tools.machine import provenance

SEEDS = 10
Row = dict[str, Any]


def of_layers() -> list[Row]:
    """The largest errors of each layer, beside what is promised."""
    rows = []
    for name, (layers, shape, units) in BOUNDS.items():
        found = worst(errors(layers, shape, "auto", seed) for seed in range(SEEDS))
        kept = all(one <= most for one, most in zip(found, units, strict=True))
        rows.append({"case": name, **found._asdict(), "bound": units._asdict(), "kept": kept})
    return rows


def of_growth() -> list[Row]:
    """The largest errors by size, and the power of the size that they follow."""
    rows = []
    for name, (make, method, sizes) in GROWTH.items():
        found = [worst(errors(*make(size), method, seed) for seed in range(3)) for size in sizes]
        powers = {field: power(sizes, [getattr(one, field) for one in found]) for field in Errors._fields}
        rows.append({"case": name, "sizes": sizes, "errors": found, "powers": powers, "kept": True})
    return rows


def of_threads() -> list[Row]:
    """Digests by the number of threads."""
    found = {count: threads.digests(count) for count in (1, 2, 3, 4, 8)}
    return [
        {"case": case, "digests": {count: all_[case] for count, all_ in found.items()},
         "kept": len({all_[case] for all_ in found.values()}) == 1}
        for case in found[1]
    ]  # fmt: skip


def of_memory() -> list[Row]:
    """Resident memory of one process while it trains."""
    marks = (100, 1000, 2500, 5000, 7500, 10_000)
    resident = memory.train(marks)
    kept = resident[-1] - resident[2] < 2**20
    return [{"case": "10,000 steps", "steps": marks, "resident": resident, "kept": kept}]


def of_chains() -> list[Row]:
    """Long chains that expand at every step."""
    exact = chains.through_time(30_000, "serial", "linear", "float64")
    rows = []
    for forward, method in (("serial", "linear"), ("serial", "blelloch"), ("newton", "blelloch")):
        for dtype in ("float64", "float32"):
            found = chains.through_time(30_000, forward, method, dtype)
            errors_found = [chains.error_of(one, other) for one, other in zip(found, exact, strict=True)]
            finite = all(error < float("inf") for error in errors_found)
            case = f"RNN of 30,000 steps, forward {forward}, backward {method}, {dtype}"
            rows.append({"case": case, "errors": errors_found, "kept": finite})
    by_method = {method: chains.of_matrices(30_000, method) for method in ("linear", "blelloch")}
    first = {method: chains.first_not_finite(found) for method, found in by_method.items()}
    error = chains.agreement(by_method["blelloch"], by_method["linear"])
    rows.append(
        {"case": "bp.scan of 30,000 matrices", "first not finite": first, "error": error, "kept": True}
    )
    return rows


PARTS: dict[str, Callable[[], list[Row]]] = {
    "layers": of_layers, "growth": of_growth, "threads": of_threads, "memory": of_memory, "chains": of_chains,
}  # fmt: skip


def main() -> int:
    """0 where every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "file", type=Path, help="JSON file to write; parts that are not measured stay as they are"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="these parts alone")
    args = parser.parse_args()
    before = json.loads(args.file.read_text(encoding="utf-8")) if args.file.exists() else {"parts": {}}
    parts = before["parts"]
    for name in args.only:
        parts[name] = PARTS[name]()
        for row in parts[name]:
            print(json.dumps(row), flush=True)
    host = get_device("host")
    of_machine = provenance(host, numba.get_num_threads())
    written = {"name": "numbers", "command": "make numbers", **of_machine, "parts": parts}
    args.file.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["kept"] for rows in parts.values() for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
