"""A compiled function and all functions it calls as one program: linked, optimised and emitted once.

Numba optimises every function, emits machine code, wraps it for Python and for C, links it into each of its
callers and optimises it there again. Inner functions only need the last step. So a function is here a *part*,
its LLVM text, until Python or an address asks for it. Then a wrapper and all parts below it are linked into
one program. The first step of a GRU compiles in 8 s instead of 30 s with plain Numba.

Programs are stored on disk for every process and checkout with the same sources. Numba's `cache=True` cannot
serve here: it knows a function that encloses a compiled function only in the process that made it, so it
would compile the recurrent kernels again in every process. Processes that write to its index at the same time
can also find another function's code under a name.
"""

from __future__ import annotations

import itertools
import os
import pickle
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import binding, ir
from llvmlite.binding.newpassmanagers import create_new_function_pass_manager
from numba import types
from numba._dynfunc import make_function
from numba.core import sigutils
from numba.core.bytecode import FunctionIdentity
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompileResult, lookup_environment
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUContext, ParallelOptions
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.serialize import dumps
from numba.core.types import Type
from numba.np.ufunc.parallel import _launch_threads

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.system.compilation import NotCompiledError, compiling, is_compiled_only
from bppsa_cupy.system.files import whole_file

#: Numba's internal names that are used below only while a function is compiled: where one is missing,
#: importing this module fails, and `compiled` takes plain Numba.
USED = (
    JITCodeLibrary._ensure_finalized, JITCodeLibrary._finalize_final_module,
    JITCodeLibrary._get_module_for_linking, JITCodeLibrary._optimize_final_module,
    JITCodeLibrary._raise_if_finalized, JITCodeLibrary.get_pointer_to_function,
    JITCodeLibrary.serialize_using_object_code, CPUContext.create_cfunc_wrapper,
    CPUContext.create_cpython_wrapper, CPUContext.get_executable, CPUDispatcher._insert,
    CPUDispatcher.add_overload, CPUDispatcher.get_call_template,
    cpu_target.target_context.codegen()._library_class, CompileResult._rebuild, lookup_environment,
)  # fmt: skip

#: The start of the names of functions that Numba writes, equal, into every module that raises an error.
SHARED = "__excinfo_unwrap_args"
#: LLVM's attribute of a function that is inlined into all its callers.
ALWAYS_INLINED = b"alwaysinline"


class PartLibrary(JITCodeLibrary):
    """The text of one part and the libraries it calls; for a program, the text of all of them.

    rounds  of optimisation of a program

    Within `parts` a library that another one links stays text. Elsewhere, where a function of another
    project calls a part, it is finalized before it is linked, as Numba expects.
    """

    rounds = 1

    def add_linking_library(self, library: Any) -> None:
        self._linking_libraries.append(library)

    def add_llvm_module(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout
        for function in ll_module.functions:
            if function.is_declaration:
                continue
            if function.name.startswith(SHARED):
                function.linkage = "linkonce_odr"
            if ALWAYS_INLINED in function.attributes:
                self._prune(function)
        self._final_module.link_in(ll_module)

    def _prune(self, function: Any) -> None:
        """Remove counts of references that go up and down again.

        After inlining into a loop with a condition between both, LLVM would no longer remove them: products
        of several samples took twice as long.
        """
        passes = create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_refprune_pass()
        passes.run(function, self._codegen._pass_builder())

    def _ensure_finalized(self) -> None:
        if not _depth:
            super()._ensure_finalized()

    def get_pointer_to_function(self, name: str) -> int:
        if not self._finalized:
            self.finalize()
        return super().get_pointer_to_function(name)

    def serialize_using_object_code(self) -> Any:
        if not self._finalized:
            self.finalize()
        return super().serialize_using_object_code()

    def finalize(self) -> None:
        """Link all that is called, directly or by others, optimise it together, and emit machine code."""
        self._raise_if_finalized()
        names = {
            function.name
            for function in self._final_module.functions
            if not function.is_declaration and not function.name.startswith(SHARED)
        }
        # Finalized libraries come last: LLVM takes the functions of theirs that are called by then.
        for library in sorted(self._below(), key=lambda library: library._finalized):
            self._reload_init.update(library._reload_init)
            text = library._get_module_for_linking() if library._finalized else library._final_module
            self._final_module.link_in(text, preserve=True)
        for function in self._final_module.functions:
            if not function.is_declaration:
                # Internal functions are inlined where they have one caller.
                function.linkage = "external" if function.name in names else "internal"
        for _ in range(self.rounds):
            self._optimize_final_module()
        self._final_module.verify()
        self._finalize_final_module()
        for variable in self._final_module.global_variables:
            environment = lookup_environment(variable.name)
            if environment is not None:
                self._codegen.set_env(variable.name, environment)

    def _below(self) -> list[Any]:
        """The libraries that this one calls, each once."""
        libraries: dict[int, Any] = {}
        waiting = list(self._linking_libraries)
        while waiting:
            library = waiting.pop()
            if id(library) not in libraries and library is not self:
                libraries[id(library)] = library
                if not library._finalized:
                    waiting += library._linking_libraries
        return list(libraries.values())


def _name(library: Any, fndesc: Any, env: Any) -> Any:
    """A stand-in for the entry of a part: Numba identifies functions by it, and nobody calls it."""
    return make_function(fndesc.lookup_module(), fndesc.qualname, "", 0, env, (library,))


_depth = 0


@contextmanager
def parts() -> Iterator[None]:
    """Make parts of all functions that Numba compiles in this block. The caller holds the compiler's lock."""
    global _depth
    context = cpu_target.target_context
    codegen = context.codegen()
    former = codegen._library_class
    _depth += 1
    codegen._library_class = PartLibrary
    # Numba's contexts are copied from this one for each function, with what is set here.
    context.get_executable = _name
    context.create_cfunc_wrapper = lambda library, fndesc, env, call_helper: None
    try:
        yield
    finally:
        _depth -= 1
        codegen._library_class = former
        if not _depth:
            del context.get_executable, context.create_cfunc_wrapper


#: How a program is called: by Python, or as C calls a function that raises nothing.
PYTHON, C = "Python", "C"


def link(part: Any, caller: str, rounds: int) -> Any:
    """The program of a part: its caller's wrapper and all parts below it, linked, optimised and emitted."""
    context = part.target_context.subtarget(environment=part.environment, fndesc=part.fndesc)
    arguments = part.fndesc, part.environment, part.call_helper
    library = PartLibrary(context.codegen(), part.fndesc.qualname)
    library.enable_object_caching()
    library.rounds = rounds
    with parts(), context.push_code_library(library):
        if caller == PYTHON:
            CPUContext.create_cpython_wrapper(context, library, *arguments, release_gil=True)
        else:
            CPUContext.create_cfunc_wrapper(context, library, *arguments)
    library.add_linking_library(part.library)
    entry = CPUContext.get_executable(context, library, part.fndesc, part.environment)
    return part._replace(library=library, entry_point=entry, reload_init=list(library._reload_init))


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
        form = CompileResult._rebuild(target_context, *reduced)
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
os.register_at_fork(after_in_child=_number_functions)


class Function(CPUDispatcher):
    """A function that becomes a part where compiled functions call it, and a program where others do.

    A constant in a call stands for its type: Numba would compile the callee again for each constant.
    """

    def __init__(self, py_func: Any, locals: Any = None, targetoptions: Any = None, **others: Any) -> None:
        options = {**(targetoptions or {}), "nopython": True}
        super().__init__(py_func, locals or {}, options, **others)
        self._compiler.targetoptions = {**options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        self.programs: dict[Any, Any] = {}
        #: Rounds of optimisation of each program.
        self.rounds = 1
        #: Where programs are stored for other processes, a `CompileCache`; None: nowhere.
        self.store: Any = None

    def get_call_template(self, args: Any, kws: Any) -> Any:
        named = {name: types.unliteral(kind) for name, kind in kws.items()}
        with parts():
            return super().get_call_template(tuple(map(types.unliteral, args)), named)

    def add_overload(self, cres: Any) -> None:
        """Store a part without the types of its lines; Python does not call it."""
        self.overloads[tuple(cres.signature.args)] = cres._replace(type_annotation="", metadata={})

    @global_compiler_lock
    def compile(self, sig: Any) -> Any:
        """The stand-in of the part of these types; outside of `parts`, the entry that Python calls."""
        if _depth:
            return super().compile(sig)
        signature, _ = sigutils.normalize_signature(sig)
        entry = self._program(signature, PYTHON).entry_point
        self._insert([kind._code for kind in signature], entry, False)
        return entry

    @global_compiler_lock
    def address(self, signature: Any) -> int:
        """The address of the machine code for these argument types, by C's calling convention."""
        program = self._program(signature, C)
        return int(program.library.get_pointer_to_function(program.fndesc.llvm_cfunc_wrapper_name))

    def _program(self, signature: Any, caller: str) -> Any:
        key = signature, caller
        if key not in self.programs:
            program = self.store and self.store.load_overload(key, self.targetctx)
            self.programs[key] = program or self._make_program(*key)
        return self.programs[key]

    def _make_program(self, signature: Any, caller: str) -> Any:
        if is_compiled_only():
            raise NotCompiledError(self.py_func.__name__)
        with compiling(self.py_func.__name__):
            with parts():
                super().compile(signature)
            made = link(self.overloads[signature], caller, self.rounds)
        if self.store:
            self.store.save_overload((signature, caller), made)
        return made
