"""Functions compiled by Numba, kept on disk for every process and checkout with the same sources."""

from __future__ import annotations

import itertools
import os
import pickle
import platform
import sys
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import binding
from numba.core import compiler
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps
from numba.np.ufunc.parallel import _launch_threads

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.system.compilation import is_compiled_only
from bppsa_cupy.system.files import whole_file
from bppsa_cupy.system.function_digest import NoDigestError, function_digest

#: Seconds to wait for another process that compiles the same function, before compiling it here as well.
PATIENCE = 300.0

#: Numba's settings, by environment variables NUMBA_NAME or by what it finds (USING_SVML), that change what it
#: compiles a function to.
SETTINGS = (
    "BOUNDSCHECK DEBUGINFO_DEFAULT DEBUG_NRT DISABLE_INTEL_SVML EXTEND_VARIABLE_LIFETIMES "
    "LLVM_REFPRUNE_FLAGS LLVM_REFPRUNE_PASS LOOP_VECTORIZE OPT PARFOR_MAX_TUPLE_SIZE SLP_VECTORIZE USING_SVML"
)


class CompileCache(FunctionCache):
    """One function's compiled forms: a file for each signature and machine, written whole.

    A file's name holds the digest of all that the code was made of (`function_digest`, types, options, the
    machine, versions, Numba's settings), its first bytes the digest of what follows: a file that is not as
    it was written is compiled anew. A function that has no digest is compiled in each process.

    Of processes that need the same form at the same time, one compiles it; the others wait, and load it:
    ranks and test workers share a first run. (Numba's own cache keeps an index file for each function, in a
    folder named by the sources' path. Processes that write there at the same time can lose a form, or find
    another's code under its name.)

    room  a package whose files' text is in the folder's name
    """

    def __init__(self, dispatcher: Any, folder: Path, room: str = "") -> None:
        function = dispatcher.py_func
        self._dispatcher, self._path, self._room = dispatcher, folder, room
        self._name = f"{function.__module__}.{function.__name__}-{function.__code__.co_firstlineno}"
        self._locks: dict[Path, Any] = {}

    @property
    def cache_path(self) -> str:
        return str(self._path)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled form for these types, or None: then this process is the one to compile and save it."""
        target_context.refresh()
        file = self._file(sig, target_context.codegen())
        if file is None:
            return None
        content = _unsealed(file)
        if content is None and not is_compiled_only():
            self._lock(file)
            content = _unsealed(file)
        if content is None:
            return None
        self._unlock(file)
        # The code may call what the threading layer brings along, a parallel loop's or `thread_count`.
        _launch_threads()
        reduced, constants = pickle.loads(content)
        form = compiler.CompileResult._rebuild(target_context, *reduced)
        # A caller's form may have brought the function's environment along, as it was before this form's
        # wrapper put constants of its own at the end of the list.
        known = form.environment.consts
        known += constants[len(known) :]
        return form

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a form that was compiled, and let those who wait for it have it."""
        file = self._file(sig, data.codegen)
        if file is None:
            return
        try:
            content = dumps((data._reduce(), [*data.environment.consts]))
            with suppress(BppsaError), whole_file(file) as temporary:
                temporary.write_bytes(sha256(content).digest() + content)
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

    def _file(self, sig: Any, codegen: Any) -> Path | None:
        try:
            digest = function_digest(self._dispatcher, self._room)
        except NoDigestError:
            return None
        settings = [getattr(numba.config, name, None) for name in SETTINGS.split()]
        key = repr((digest, sig, codegen.magic_tuple(), settings, _here()))
        return self._path / f"{self._name}-{sha256(key.encode()).hexdigest()[:32]}"

    def _lock(self, file: Path) -> None:
        from filelock import FileLock, Timeout  # 30 ms to import, for a first run alone

        if file in self._locks:
            return
        lock = FileLock(file.with_name(f"{file.name}.lock"), timeout=PATIENCE)
        try:
            lock.acquire()
        except (OSError, Timeout, NotImplementedError):  # the last where the file system has no locks
            return
        self._locks[file] = lock

    def _unlock(self, file: Path) -> None:
        lock = self._locks.pop(file, None)
        if lock is not None:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()


def _unsealed(file: Path) -> bytes | None:
    """What a file holds after its seal; None where there is no file, or not what was written."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    seal, content = content[:32], content[32:]
    return content if sha256(content).digest() == seal else None


@cache
def _here() -> tuple[Any, ...]:
    """The machine and the versions, of which sources may choose by themselves."""
    processor = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    versions = sys.version, numba.__version__, llvmlite.__version__, np.__version__
    return sys.platform, platform.machine(), *processor, *versions


def _count_apart() -> None:
    """Have Numba number functions from a number of this process's own.

    It names machine code by a function's name and number. Code of two processes with equal names would be
    taken for one another where a third loads both.
    """
    FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(7), "little"))


_count_apart()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_apart)
