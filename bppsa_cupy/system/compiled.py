"""Compiling loops with Numba, with an on-disk cache that notices an edit of any source they may depend on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba.core.cpu import ParallelOptions

from bppsa_cupy.system import compilation, compile_cache, linking
from bppsa_cupy.system.compile_cache import CompileCache
from bppsa_cupy.system.linking import Function


def sources_digest(package: str) -> str:
    """SHA-256 over the Python sources of a package or module, by their names, and over those that compile and
    keep them: this file, `linking` and `compile_cache`."""
    state = sha256(Path(__file__).read_bytes())
    for compiler in (linking, compile_cache):
        state.update(Path(str(compiler.__file__)).read_bytes())
    source = Path(str(sys.modules[package].__file__))
    paths = sorted(source.parent.rglob("*.py")) if source.name == "__init__.py" else [source]
    for path in paths:
        state.update(str(path.relative_to(source.parent)).encode() + b"\0" + path.read_bytes())
    return state.hexdigest()


@cache
def cache_folder(package: str) -> Path:
    """Where a package's compiled functions are kept, by the digest of its sources."""
    return compilation.kept_in() / "numba" / sources_digest(package)[:16]


def _room_of(module: str) -> str:
    """A function's room: `bppsa_cupy.NAME` of the package, elsewhere its module alone."""
    return ".".join(module.split(".")[:2]) if module.startswith("bppsa_cupy.") else module


#: What becomes a loop of all threads in a parallel function: `prange` alone. Numba would make loops of every
#: array expression too, look for some to fuse, and compile each by itself.
PRANGE = ParallelOptions(
    {
        "prange": True, "comprehension": False, "fusion": False, "inplace_binop": False, "numpy": False,
        "reduction": False, "setitem": False, "stencil": False,
    }
)  # fmt: skip


def part(*, parallel: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Function]:
    """Decorate a loop that compiled ones alone call: as `compiled`, and kept on disk with what calls it."""
    options |= {
        "boundscheck": None,
        "parallel": PRANGE if parallel else False,
        "nogil": True,
        "error_model": "numpy",
    }
    return lambda function: Function(function, targetoptions=options)


def compiled(
    *, parallel: bool = False, rounds: int = 1, **options: Any
) -> Callable[[Callable[..., Any]], Function]:
    """Decorate a loop: nopython, no Python object, no fastmath, kept on disk (`CompileCache`); a first run
    says what it compiles (`compilation`).

    rounds  of optimisation, each of which takes as long as the first: a second saves a tenth of the time of
            sums that fill the registers

    Law: a compiled function calls only compiled functions of its own room, `bppsa_cupy.raw_kernels` or
    `bppsa_cupy.plan`. The path holds the digest of the whole room's sources, so that an edit of a called
    function in another file counts; one of the whole project would compile all anew after every edit. Where
    the cache folder cannot be made, functions are compiled in each process.
    """

    def decorate(function: Callable[..., Any]) -> Function:
        made = part(parallel=parallel, **options)(function)
        made.rounds = rounds
        compilation.announce(made)
        room = _room_of(function.__module__)
        folder = cache_folder(room)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return made
        made.kept = CompileCache(made, folder, room)
        return made

    return decorate
