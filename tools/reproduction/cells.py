"""Runs that are made once and kept: a file each, by what is run, its settings, the code and the machine."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from bppsa_cupy.system.files import write_text

#: The packages that results follow from, and the modules of this one: those of tools are listed, so that a
#: page may change without its runs.
CODE = (
    "bppsa_cupy", "bppsa_cupy.jacobians", "bppsa_cupy.raw_kernels", "bppsa_cupy.tools.benchmarks",
    "bppsa_cupy.tools.pictures", "bppsa_cupy.tools.plans",
)  # fmt: skip
MODULES = ("curves", "data", "lenet5", "runs", "sequences", "space", "torch_training")
#: Of an installed package, those that lie inside of its folder and are listed themselves, or not at all.
MAPPED = ("jacobians", "raw_kernels", "tools")
SUFFIXES = (".py", ".cu", ".cuh")


@dataclass(frozen=True)
class Cell:
    """A run whose result is kept.

    name      unique among the runs
    measure   what is run: of the settings alone, a result as JSON holds it
    settings  what it follows from, as JSON holds it
    weight    seconds that it takes about, on two cores
    """

    name: str
    measure: Callable[[Mapping[str, Any]], Any]
    settings: Mapping[str, Any]
    weight: float


class Store:
    """The folder of finished runs.

    machine  what times are of: processor, cores, GPU, versions
    """

    def __init__(self, folder: Path, machine: Mapping[str, Any]) -> None:
        self.folder, self.machine = folder, machine

    def path(self, cell: Cell) -> Path:
        """Where a run's result lies."""
        key = {
            "name": cell.name, "run": cell.measure.__name__, "settings": cell.settings,
            "code": code_digest(), "machine": self.machine,
        }  # fmt: skip
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        return self.folder / f"{re.sub('[^a-z0-9]+', '-', cell.name.lower())}-{digest[:16]}.json"

    def read(self, cell: Cell) -> Kept | None:
        """A finished run; None where there is none, or its file cannot be read."""
        try:
            return Kept(**json.loads(self.path(cell).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, cell: Cell, kept: Kept) -> None:
        """Keep a run; the file is there whole or not at all. Raises BppsaError where it cannot be written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.path(cell), json.dumps(vars(kept)) + "\n")


@dataclass(frozen=True)
class Kept:
    """A finished run: its name and settings, the seconds it took, the machine, and what it gave."""

    name: str
    settings: dict[str, Any]
    seconds: float
    machine: dict[str, Any]
    result: Any


@lru_cache(maxsize=1)
def code_digest() -> str:
    """SHA-256 of the sources of CODE and MODULES."""
    found = hashlib.sha256()
    for package in CODE:
        folder = Path(next(iter(importlib.import_module(package).__path__)))
        for path in sorted(folder.rglob("*")):
            inner = path.relative_to(folder)
            if path.suffix in SUFFIXES and not (package == "bppsa_cupy" and inner.parts[0] in MAPPED):
                found.update(f"{package}/{inner.as_posix()}\0".encode() + path.read_bytes())
    for name in MODULES:
        found.update(f"{name}\0".encode() + Path(__file__).with_name(f"{name}.py").read_bytes())
    return found.hexdigest()
