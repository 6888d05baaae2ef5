"""Functions compiled by Numba, kept on disk for every process and checkout with the same sources."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba.core import compiler, event
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps
from numba.np.ufunc.parallel import _launch_threads

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.system.files import whole_file

#: Seconds to wait for another process that compiles the same function, before compiling it here as well.
PATIENCE = 300.0


class CompileCache(FunctionCache):
    """One function's compiled forms: a file for each signature and machine, written whole.

    Of processes that need the same form at the same time, one compiles it; the others wait, and load it:
    ranks and test workers share a first run. (Numba's own cache keeps an index file for each function, in a
    folder named by the sources' path. Processes that write there at the same time can lose a form, or find
    another's code under its name.)
    """

    def __init__(self, function: Callable[..., Any], folder: Path, parallel: bool) -> None:
        self._py_func, self._parallel = function, parallel
        self._name = f"{function.__module__}.{function.__name__}-{function.__code__.co_firstlineno}"
        self._path = folder
        self._locks: dict[Path, Any] = {}

    @property
    def cache_path(self) -> str:
        return str(self._path)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled form for these types, or None: then this process is the one to compile and save it."""
        target_context.refresh()
        file = self._file(sig, target_context.codegen())
        if not file.exists():
            self._lock(file)
        try:
            content = file.read_bytes()
        except OSError:
            return None
        self._unlock(file)
        # The code may call what the threading layer brings along, a parallel loop's or `thread_count`.
        _launch_threads()
        return compiler.CompileResult._rebuild(target_context, *pickle.loads(content))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a form that was compiled, and let those who wait for it have it."""
        file = self._file(sig, data.codegen)
        try:
            with suppress(BppsaError), whole_file(file) as temporary:
                temporary.write_bytes(dumps(data._reduce()))
        finally:
            self._unlock(file)

    def release(self) -> None:
        """Let other processes compile what this one could not."""
        for file in list(self._locks):
            self._unlock(file)

    def flush(self) -> None:
        """Forget every form of the function."""
        for file in self._path.glob(f"{self._name}-*"):
            file.unlink(missing_ok=True)

    def _file(self, sig: Any, codegen: Any) -> Path:
        meaning = sig, codegen.magic_tuple(), self._parallel, described(self._py_func)
        key = repr((sys.implementation.cache_tag, meaning))
        return self._path / f"{self._name}-{sha256(key.encode()).hexdigest()[:24]}"

    def _lock(self, file: Path) -> None:
        from filelock import FileLock, Timeout  # 30 ms to import, for a first run alone

        if file in self._locks:
            return
        lock = FileLock(file.with_name(f"{file.name}.lock"), timeout=PATIENCE)
        try:
            lock.acquire()
        except (OSError, Timeout):
            return
        self._locks[file] = lock

    def _unlock(self, file: Path) -> None:
        lock = self._locks.pop(file, None)
        if lock is not None:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()


def described(function: Any) -> Any:
    """A function by its code and what it encloses, in every process the same."""
    function = getattr(function, "py_func", getattr(function, "_defn", function))  # of a loop, an intrinsic
    if not callable(function) or not hasattr(function, "__code__"):
        return repr(function)
    enclosed = [described(cell.cell_contents) for cell in function.__closure__ or ()]
    name = f"{function.__module__}.{function.__qualname__}"
    return name, sha256(function.__code__.co_code).hexdigest(), enclosed


class _Failures(event.Listener):
    """Compilations that end with an error or Ctrl-C: nothing will be saved."""

    def on_start(self, event: Any) -> None:
        pass

    def on_end(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]
        made = tuple(event.data["args"]) in dispatcher.overloads
        if not made and isinstance(dispatcher._cache, CompileCache):
            dispatcher._cache.release()


event.register("numba:compile", _Failures())
