"""Benchmarks, one a file: a module here with `add_arguments` and `run` is a benchmark of bppsa-bench.

`add_arguments(parser)` adds the options of its own; `run(arguments)` gives its rows (harness.Row), or,
where it takes long, yields lists of them, each of which is written as it comes. `table(rows)` is their text,
where it has one of its own.
`arguments` holds the common ones too: device, against, threads, repeats, quick. One that measures nothing on
a device has no `AGAINST`: it gives `make_report(arguments)`, the object of --json, and `table(rows)`.
Where `SEVERAL` names rivals, `against` is a list, of these by default.
A module with `BENCHMARKS` holds several by name, each with these as attributes.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any


def find_benchmarks() -> dict[str, Any]:
    """The benchmarks by name, in alphabetical order."""
    found: dict[str, Any] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        if hasattr(module, "BENCHMARKS"):
            found |= module.BENCHMARKS
        elif hasattr(module, "add_arguments"):
            found[info.name.replace("_", "-")] = module
    return dict(sorted(found.items()))
