"""Functions compiled by Numba, stored on disk for every process and checkout with the same sources.

Numba's `cache=True` cannot serve here: it knows a function that encloses a compiled function only in the
process that made it, so it would compile the recurrent kernels again in every process. Processes that write
to its index at the same time can also find another function's code under a name.
"""

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
from types import CodeType, FunctionType
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import binding, ir
from numba.core import compiler
from numba.core.bytecode import FunctionIdentity
from numba.core.cpu import ParallelOptions
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.serialize import dumps
from numba.core.types import Type
from numba.np.ufunc.parallel import _launch_threads

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.system.files import whole_file

#: Numba's settings, by environment variables NUMBA_NAME or by what it finds (USING_SVML), that change what it
#: compiles a function to.
SETTINGS = (
    "BOUNDSCHECK DEBUGINFO_DEFAULT DEBUG_NRT DISABLE_INTEL_SVML EXTEND_VARIABLE_LIFETIMES "
    "LLVM_REFPRUNE_FLAGS LLVM_REFPRUNE_PASS LOOP_VECTORIZE OPT PARFOR_MAX_TUPLE_SIZE SLP_VECTORIZE USING_SVML"
)


class NoKeyError(Exception):
    """A function encloses a value that has no text of its own."""


class CompileCache:
    """One function's compiled forms: a file for each signature and machine, written whole.

    A file's name holds the digest of everything the code was made from: the function (`function_key`), types,
    the machine, versions and Numba's settings. The folder's name holds the digest of the sources. The
    file begins with the digest of its content, and a damaged file is compiled anew. A function without a key
    is compiled in each process.
    """

    def __init__(self, dispatcher: Any, folder: Path) -> None:
        function = dispatcher.py_func
        self._dispatcher, self._folder = dispatcher, folder
        self._name = f"{function.__module__}.{function.__name__}-{function.__code__.co_firstlineno}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled form for these types, or None: then this process is to compile and save it."""
        target_context.refresh()
        file = self._file(sig, target_context.codegen())
        if file is None:
            return None
        content = _read_checked(file)
        if content is None:
            return None
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
        """Write a form that was compiled."""
        file = self._file(sig, data.codegen)
        if file is None:
            return
        content = dumps((data._reduce(), [*data.environment.consts]))
        with suppress(BppsaError), whole_file(file) as temporary:
            temporary.write_bytes(sha256(content).digest() + content)

    def _file(self, sig: Any, codegen: Any) -> Path | None:
        try:
            made_from = function_key(self._dispatcher)
        except NoKeyError:
            return None
        settings = [getattr(numba.config, name, None) for name in SETTINGS.split()]
        key = repr((made_from, sig, codegen.magic_tuple(), settings, _environment()))
        return self._folder / f"{self._name}-{sha256(key.encode()).hexdigest()[:32]}"


def _read_checked(file: Path) -> bytes | None:
    """A file's content after its digest; None where there is no file, or the digest is another."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    seal, content = content[:32], content[32:]
    return content if sha256(content).digest() == seal else None


@cache
def _environment() -> tuple[Any, ...]:
    """The machine and the versions, by which sources may choose."""
    processor = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    versions = sys.version, numba.__version__, llvmlite.__version__, np.__version__
    return sys.platform, platform.machine(), *processor, *versions


def function_key(value: Any, within: tuple[Any, ...] = ()) -> Any:
    """What tells a function from all others of the same sources, in every process, as texts and tuples.

    The key holds the place of a function in the sources, its code, defaults and the values that it encloses,
    which may be functions. Globals are not in the key: the digest of the sources covers them, or the
    file name of generated code, which is made from its text. Raises NoKeyError for a value without a text,
    such as an open file.
    """
    kind = type(value)
    if kind in (type(None), type(Ellipsis), bool, int, float, complex, str, bytes):
        return kind.__name__, repr(value)
    if isinstance(value, (Type, ir.Type, np.dtype, np.generic)) and " at 0x" not in str(value):
        return kind.__name__, str(value)
    if isinstance(value, type):
        return "class", value.__module__, value.__qualname__
    if any(value is outer for outer in within):
        return "enclosing function"
    within = (*within, value)
    if isinstance(value, (tuple, list)):
        return kind.__name__, *(function_key(element, within) for element in value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return "array", repr(value.dtype), value.shape, value.strides, sha256(value.tobytes()).hexdigest()
    if isinstance(value, Dispatcher):
        return "compiled", _options_key(value.targetoptions), function_key(value.py_func, within)
    if isinstance(value, _Intrinsic):
        return "intrinsic", function_key(value._defn, within)
    if not isinstance(value, FunctionType):
        raise NoKeyError(f"{kind.__qualname__} {value!r}")
    enclosed = []
    for cell in value.__closure__ or ():
        try:
            enclosed.append(function_key(cell.cell_contents, within))
        except ValueError:  # not set yet
            enclosed.append("empty")
    defaults = [value.__defaults__, *sorted((value.__kwdefaults__ or {}).items())]
    return (
        value.__module__, value.__qualname__, _code_key(value.__code__), function_key(defaults, within),
        *enclosed,
    )  # fmt: skip


def _code_key(code: CodeType) -> Any:
    generated = code.co_filename if code.co_filename.startswith("<") else ""
    constants = [_code_key(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return generated, code.co_firstlineno, counts, code.co_code, constants, names


def _options_key(options: dict[str, Any]) -> Any:
    """Numba's options; how it makes parallel loops is written in the sources."""
    return sorted(
        (name, "parallel" if isinstance(value, ParallelOptions) else repr(value))
        for name, value in options.items()
    )


def _number_functions() -> None:
    """Have Numba number functions from a number of this process's own.

    It names machine code by a function's name and number. Code of two processes with equal names would be
    taken for one another where a third loads both.
    """
    FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(7), "little"))


_number_functions()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_number_functions)
