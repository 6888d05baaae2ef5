"""Compiling Numba twins, with an on-disk cache that notices an edit of any kernel source."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import config

FOLDER = Path(__file__).parent.parent


def sources_digest() -> str:
    """SHA-256 over the Python sources of the kernels, in the order of their names."""
    state = hashlib.sha256(numba.__version__.encode())
    for path in sorted(FOLDER.rglob("*.py")):
        state.update(str(path.relative_to(FOLDER)).encode() + b"\0" + path.read_bytes())
    return state.hexdigest()


def cache_folder() -> Path:
    """Where compiled twins are kept: below XDG_CACHE_HOME (default ~/.cache), by sources' digest."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "bppsa-cupy" / "numba" / _DIGEST[:16]


_DIGEST = sources_digest()


def twin(*, parallel: bool = False, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a kernel's Numba twin: nopython, no Python object, no fastmath, cached on disk.

    Numba's own cache does not notice the edit of a function called from another file, hence the
    digest in the path. Where the cache folder cannot be made, twins are compiled in each process.
    """

    def compile(function: Callable[..., None]) -> Callable[..., None]:
        dispatcher = numba.njit(parallel=parallel, nogil=True, error_model="numpy", **options)(function)
        folder = cache_folder()
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

    return compile
