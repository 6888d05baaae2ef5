"""Benchmarks, one a file: a module here with `add_arguments` and `run` is a benchmark of bppsa-bench.

`add_arguments(parser)` adds the options of its own; `run(arguments)` gives its rows (harness.Row), or,
where it takes long, yields lists of them, each of which is written as it comes. `table(rows)` is their text,
where it has one of its own.
`arguments` holds the common ones too: device, against, threads, repeats, quick. One that measures nothing on
a device has no `AGAINST`: it gives `make_report(arguments)`, the object of --json, and `table(rows)`.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def find_benchmarks() -> dict[str, ModuleType]:
    """The benchmarks by name, in alphabetical order."""
    modules = {
        info.name.replace("_", "-"): importlib.import_module(f"{__name__}.{info.name}")
        for info in pkgutil.iter_modules(__path__)
    }
    return {name: module for name, module in sorted(modules.items()) if hasattr(module, "add_arguments")}
