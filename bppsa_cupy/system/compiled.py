"""Compiling loops with Numba, with an on-disk cache that notices an edit of any source they may depend on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
from numba import types

from bppsa_cupy.system import compilation
from bppsa_cupy.system.compile_cache import CompileCache, described


def sources_digest(package: str) -> str:
    """SHA-256 over the Python sources of a package or module, by their names, and of this file."""
    state = sha256(numba.__version__.encode() + Path(__file__).read_bytes())
    source = Path(str(sys.modules[package].__file__))
    paths = sorted(source.parent.rglob("*.py")) if source.name == "__init__.py" else [source]
    for path in paths:
        state.update(str(path.relative_to(source.parent)).encode() + b"\0" + path.read_bytes())
    return state.hexdigest()


@cache
def cache_folder(package: str) -> Path:
    """Where a package's compiled functions are kept, by the digest of its sources."""
    return compilation.kept_in() / "numba" / sources_digest(package)[:16]


def _without_literals(get_call_template: Callable[..., Any]) -> Callable[..., Any]:
    """Have a constant in a call stand for its type: Numba would compile the callee once more for each."""

    def call(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        named = {name: types.unliteral(kind) for name, kind in keywords.items()}
        return get_call_template(tuple(map(types.unliteral, arguments)), named)

    return call


def compiled(*, parallel: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a loop: nopython, no Python object, no fastmath, kept on disk (`CompileCache`); a first run
    says what it compiles (`compilation`).

    Law: a compiled function calls only compiled functions of its own room, `bppsa_cupy.raw_kernels` or
    `bppsa_cupy.plan`. The path holds the digest of the whole room's sources, so that an edit of a called
    function in another file counts; one of the whole project would compile all anew after every edit. Where
    the cache folder cannot be made, functions are compiled in each process.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if function.__closure__:
            # Numba names machine code by this name and a number of its own, which two processes may give to
            # two functions that differ in what they enclose alone; from disk one of them would be taken for
            # the other.
            function.__qualname__ += f"_{sha256(repr(described(function)).encode()).hexdigest()[:16]}"
        dispatcher = numba.njit(parallel=parallel, nogil=True, error_model="numpy", **options)(function)
        dispatcher.get_call_template = _without_literals(dispatcher.get_call_template)
        compilation.announce(dispatcher)
        folder = cache_folder(".".join(function.__module__.split(".")[:2]))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return dispatcher
        dispatcher._cache = CompileCache(function, folder, parallel)
        return dispatcher

    return decorate
