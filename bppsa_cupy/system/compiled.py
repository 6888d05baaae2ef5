"""Compiling loops with Numba, with an on-disk cache that notices an edit of any source they may depend on."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import config

from bppsa_cupy.system import compilation


def sources_digest(package: str) -> str:
    """SHA-256 over the Python sources of a package, in the order of their names, and this file's."""
    state = hashlib.sha256(numba.__version__.encode() + Path(__file__).read_bytes())
    for folder in map(Path, sys.modules[package].__path__):
        for path in sorted(folder.rglob("*.py")):
            state.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return state.hexdigest()


@cache
def cache_folder(package: str) -> Path:
    """Where a package's compiled functions are kept, by the digest of its sources."""
    return compilation.kept_in() / "numba" / sources_digest(package)[:16]


def compiled(*, parallel: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a loop: nopython, no Python object, no fastmath, cached on disk; the first run says what it
    compiles (`compilation`).

    Law: a compiled function calls only compiled functions of its own room, `bppsa_cupy.raw_kernels` or
    `bppsa_cupy.plan`. Numba's own cache notices an edit of the function's file alone, hence the digest of the
    whole room in the path; one of the whole project would compile all anew after every edit. Where the cache
    folder cannot be made, functions are compiled in each process.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        dispatcher = numba.njit(parallel=parallel, nogil=True, error_model="numpy", **options)(function)
        compilation.announce(dispatcher)
        folder = cache_folder(".".join(function.__module__.split(".")[:2]))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return dispatcher
        previous, config.CACHE_DIR = config.CACHE_DIR, str(folder)
        try:
            dispatcher.enable_caching()
        finally:
            config.CACHE_DIR = previous
        return dispatcher

    return decorate
