"""Compiling loops with Numba, with an on-disk cache that notices an edit of any source they may depend on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numba
from numba.core.cpu import ParallelOptions

from bppsa_cupy.system.compilation import kept_in

try:
    from bppsa_cupy.system.linking import CompileCache, Function
except (ImportError, AttributeError):  # an internal name that this version of Numba does not have
    IS_PLAIN = True
else:
    IS_PLAIN = False


#: What becomes a loop of all threads in a parallel function: only `prange`. Numba would make loops of every
#: array expression too, look for some to fuse, and compile each separately.
PRANGE = ParallelOptions(
    {
        "prange": True, "comprehension": False, "fusion": False, "inplace_binop": False, "numpy": False,
        "reduction": False, "setitem": False, "stencil": False,
    }
)  # fmt: skip


def part(*, parallel: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a loop that only compiled functions call: as `compiled`, stored on disk with its callers."""
    options |= {
        "boundscheck": None,
        "parallel": PRANGE if parallel else False,
        "nogil": True,
        "error_model": "numpy",
    }
    if IS_PLAIN:
        return lambda function: _plain_function(function, options)
    return lambda function: Function(function, targetoptions=options)


def compiled(
    *, parallel: bool = False, rounds: int = 1, **options: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a loop: nopython, no Python object, no fastmath, stored on disk (`CompileCache`).

    Law: a compiled function calls only compiled functions of its package (bppsa_cupy.NAME) and of
    `bppsa_cupy.raw_kernels`. The folder's name holds the digest of their sources, so that an edit of a called
    function in another file counts. Where the folder cannot be made, functions are compiled in each process.

    Parameters
    ----------
    rounds : int, default: 1
        Rounds of optimisation. Each takes as long as the first. A second round saves a tenth of the time of
        sums that fill the registers.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        made = part(parallel=parallel, **options)(function)
        if not IS_PLAIN:
            made.rounds = rounds
            folder = cache_folder(_package_of(function.__module__))
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                made.store = CompileCache(made, folder)
        return made

    return decorate


@cache
def cache_folder(package: str) -> Path:
    """The folder of a package's compiled functions, named by the digest of its sources."""
    return kept_in() / "numba" / sources_digest(package)[:16]


def sources_digest(package: str) -> str:
    """SHA-256 over the Python sources of a package or module, of `raw_kernels`, which every package may call,
    and of the modules that compile and store functions."""
    state = sha256()
    paths = [Path(__file__).with_name(f"{name}.py") for name in ("compiled", "linking")]
    for name in dict.fromkeys(["bppsa_cupy.raw_kernels", package]):
        source = Path(str(import_module(name).__file__))
        paths += sorted(source.parent.rglob("*.py")) if source.name == "__init__.py" else [source]
    for path in paths:
        state.update(path.name.encode() + b"\0" + path.read_bytes())
    return state.hexdigest()


def _package_of(module: str) -> str:
    """`bppsa_cupy.NAME` of a function's module; elsewhere the module."""
    return ".".join(module.split(".")[:2]) if module.startswith("bppsa_cupy.") else module


def _plain_function(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """A function of Numba's public interface, which every process compiles anew; slower to compile."""
    made = numba.njit(**options)(function)

    @cache
    def compile_for_c(signature: tuple[Any, ...]) -> Any:
        return numba.cfunc(numba.void(*signature), **options)(function)

    made.address = lambda signature: compile_for_c(tuple(signature)).address
    return made
