"""A compiled function and all that it calls as one program: linked, optimised and emitted once.

Numba compiles every function by itself: it optimises it, emits machine code, wraps it for Python and for C,
then links it into each of its callers and optimises it there again. Of functions that compiled ones alone
call, nothing but the last is ever used. So here a function is a *part*, LLVM's text of it and no more, until
Python or an address asks for it: then a wrapper and all parts below it are linked into one program.
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
from numba.extending import overload
from numba.np import arrayobj

from bppsa_cupy.system.compilation import NotCompiledError, compiling, is_compiled_only

#: Numba's internal names that are used below only while a function is compiled: where one is missing,
#: importing this module fails, and `compiled` takes plain Numba.
USED = (
    JITCodeLibrary._ensure_finalized, JITCodeLibrary._finalize_final_module,
    JITCodeLibrary._get_module_for_linking, JITCodeLibrary._optimize_final_module,
    JITCodeLibrary._raise_if_finalized, JITCodeLibrary.get_pointer_to_function,
    JITCodeLibrary.serialize_using_object_code, CPUContext.create_cfunc_wrapper,
    CPUContext.create_cpython_wrapper, CPUContext.get_executable, CPUDispatcher._insert,
    CPUDispatcher.add_overload, CPUDispatcher.get_call_template, arrayobj.raise_with_shape_context,
    cpu_target.target_context.codegen()._library_class, CompileResult._rebuild, lookup_environment,
)  # fmt: skip

#: How functions are called that Numba writes into every module which raises such an error, all alike.
SHARED = "__excinfo_unwrap_args"
#: LLVM's attribute of a function that is inlined into all its callers.
ALWAYS_INLINED = b"alwaysinline"


class PartLibrary(JITCodeLibrary):
    """The text of one part, and which libraries it calls; as a program, all of their text.

    rounds  of optimisation that a program takes

    Within `parts` nothing is done to a library that another one links. Elsewhere, where a function that is
    not of this project calls a part, it is what Numba expects, finalized before it is linked.
    """

    rounds = 1

    def add_linking_library(self, library: Any) -> None:
        self._linking_libraries.append(library)

    def add_llvm_module(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout
        for one in ll_module.functions:
            if one.is_declaration:
                continue
            if one.name.startswith(SHARED):
                one.linkage = "linkonce_odr"
            if ALWAYS_INLINED in one.attributes:
                self._prune(one)
        self._final_module.link_in(ll_module)

    def _prune(self, one: Any) -> None:
        """Take out of a function what counts the references to its arrays up and down again.

        Inlined into a loop, with a condition between both, LLVM would no longer see that one undoes the
        other, and would count in every turn.
        """
        passes = create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_refprune_pass()
        passes.run(one, self._codegen._pass_builder())

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
        own = {
            one.name
            for one in self._final_module.functions
            if not one.is_declaration and not one.name.startswith(SHARED)
        }
        # What is finalized comes last: of it LLVM takes what is called by then.
        for library in sorted(self._below(), key=lambda library: library._finalized):
            self._reload_init.update(library._reload_init)
            text = library._get_module_for_linking() if library._finalized else library._final_module
            self._final_module.link_in(text, preserve=True)
        for one in self._final_module.functions:
            if not one.is_declaration:
                # What nobody else can call is inlined where it has one caller, and else kept as it is best.
                one.linkage = "external" if one.name in own else "internal"
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
        found: dict[int, Any] = {}
        waiting = list(self._linking_libraries)
        while waiting:
            library = waiting.pop()
            if id(library) not in found and library is not self:
                found[id(library)] = library
                if not library._finalized:
                    waiting += library._linking_libraries
        return list(found.values())


def _name(library: Any, fndesc: Any, env: Any) -> Any:
    """What stands for the entry of a part: Numba tells functions apart by it, and nobody calls it."""
    return make_function(fndesc.lookup_module(), fndesc.qualname, "", 0, env, (library,))


def _raise_sizes(source: Any, target: Any) -> None:
    """What raises where an array is assigned to a slice of another size."""
    raise NotImplementedError


@overload(_raise_sizes)
def _raising(source: Any, target: Any) -> Any:
    def raise_sizes(source: Any, target: Any) -> None:
        raise ValueError("cannot assign slice from input of different size")

    return raise_sizes


_depth = 0


@contextmanager
def parts() -> Iterator[None]:
    """Have what Numba compiles in this block be parts, its own functions too. The caller holds the compiler's
    lock."""
    global _depth
    context = cpu_target.target_context
    codegen = context.codegen()
    former = codegen._library_class, arrayobj.raise_with_shape_context
    _depth += 1
    codegen._library_class = PartLibrary
    # Numba's contexts are copied from this one for each function, with what is set here.
    context.get_executable = _name
    context.create_cfunc_wrapper = lambda library, fndesc, env, call_helper: None
    # Numba's own writes both shapes into its message: strings, which take longer than the rest of a loop.
    arrayobj.raise_with_shape_context = _raise_sizes
    try:
        yield
    finally:
        _depth -= 1
        codegen._library_class, arrayobj.raise_with_shape_context = former
        if not _depth:
            del context.get_executable, context.create_cfunc_wrapper


#: How a program is called: by Python, or as C calls a function that raises nothing.
PYTHON, C = "Python", "C"


def link(part: Any, caller: str, rounds: int) -> Any:
    """The program of a part: linked with all below it after its caller's wrapper, optimised in so many
    rounds, and emitted."""
    context = part.target_context.subtarget(environment=part.environment, fndesc=part.fndesc)
    given = part.fndesc, part.environment, part.call_helper
    library = PartLibrary(context.codegen(), part.fndesc.qualname)
    library.enable_object_caching()
    library.rounds = rounds
    with parts(), context.push_code_library(library):
        if caller == PYTHON:
            CPUContext.create_cpython_wrapper(context, library, *given, release_gil=True)
        else:
            CPUContext.create_cfunc_wrapper(context, library, *given)
    library.add_linking_library(part.library)
    entry = CPUContext.get_executable(context, library, part.fndesc, part.environment)
    return part._replace(library=library, entry_point=entry, reload_init=list(library._reload_init))


class Function(CPUDispatcher):
    """A function that becomes a part where compiled functions call it, and a program where others do.

    A constant in a call stands for its type: Numba would compile the callee once more for each.
    """

    def __init__(self, py_func: Any, locals: Any = None, targetoptions: Any = None, **others: Any) -> None:
        options = {**(targetoptions or {}), "nopython": True}
        super().__init__(py_func, locals or {}, options, **others)
        self._compiler.targetoptions = {**options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        self.programs: dict[Any, Any] = {}
        #: Of optimisation, of each program.
        self.rounds = 1
        #: Where programs are stored for other processes, a `CompileCache`; None: nowhere.
        self.kept: Any = None

    def get_call_template(self, args: Any, kws: Any) -> Any:
        named = {name: types.unliteral(kind) for name, kind in kws.items()}
        with parts():
            return super().get_call_template(tuple(map(types.unliteral, args)), named)

    def add_overload(self, cres: Any) -> None:
        """Keep a part, of which Python's way to compiled forms learns nothing; not the types of its lines."""
        self.overloads[tuple(cres.signature.args)] = cres._replace(type_annotation="", metadata={})

    @global_compiler_lock
    def compile(self, sig: Any) -> Any:
        """What other parts know the one of these types by; outside of `parts`, what Python calls."""
        if _depth:
            return super().compile(sig)
        signature, _ = sigutils.normalize_signature(sig)
        entry = self._program(signature, PYTHON).entry_point
        self._insert([kind._code for kind in signature], entry, False)
        return entry

    @global_compiler_lock
    def address(self, signature: Any) -> int:
        """Where the machine code for these argument types begins, for C's way to call it."""
        program = self._program(signature, C)
        return int(program.library.get_pointer_to_function(program.fndesc.llvm_cfunc_wrapper_name))

    def _program(self, signature: Any, caller: str) -> Any:
        key = signature, caller
        if key not in self.programs:
            found = self.kept and self.kept.load_overload(key, self.targetctx)
            self.programs[key] = found or self._make_program(*key)
        return self.programs[key]

    def _make_program(self, signature: Any, caller: str) -> Any:
        if is_compiled_only():
            raise NotCompiledError(self.py_func.__name__)
        try:
            with compiling(self.py_func.__name__):
                with parts():
                    super().compile(signature)
                made = link(self.overloads[signature], caller, self.rounds)
            if self.kept:
                self.kept.save_overload((signature, caller), made)
        finally:
            if self.kept:
                self.kept.release()
        return made
