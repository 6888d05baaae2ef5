"""A compiled function and all functions it calls as one program: linked, optimised and emitted once.

Numba optimises every function, emits machine code, wraps it for Python and for C, links it into each of its
callers and optimises it there again. Inner functions only need the last step. So a function is here a *part*,
its LLVM text, until Python or an address asks for it. Then a wrapper and all parts below it are linked into
one program. The first step of a GRU in PyTorch compiles in a third of the time of plain Numba.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite.binding.newpassmanagers import create_new_function_pass_manager
from numba import types
from numba._dynfunc import make_function
from numba.core import sigutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompileResult, lookup_environment
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUContext
from numba.core.registry import CPUDispatcher, cpu_target

from bppsa_cupy.system.compilation import NotCompiledError, compiling, is_compiled_only

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
