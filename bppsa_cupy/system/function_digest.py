"""What a function can see when Numba compiles it, as one digest: in every process the same."""

from __future__ import annotations

import builtins
import dis
import enum
import struct
import sys
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from llvmlite import ir
from numba.core.cpu import ParallelOptions
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.types import Type

#: Packages whose members go by their names: keys of compiled code hold their versions.
LIBRARIES = frozenset({"numba", "numpy", "llvmlite", *sys.stdlib_module_names})


class NoDigestError(Exception):
    """A function sees something that no digest tells from everything else."""


def function_digest(function: Any, room: str = "") -> str:
    """SHA-256 of all that a function sees while it is compiled, by value: its code, constants, names and
    defaults, nested code, what it encloses, the globals that it reads, and what the functions among these
    see in turn, with Numba's options. Equal for equal functions in every process, another for others.

    room  a package whose files' text is in the caller's key: its classes go by their names

    Raises NoDigestError where something has no value of its own, such as an open file, or leads to itself by
    others: a function may call itself, not one that calls it.
    """
    return _digest(_Walk(room).told(function))


#: The digests of functions that were met, by the room: what a function sees is compiled in, and stays.
_KNOWN: dict[str, WeakKeyDictionary[FunctionType, str]] = {}

#: Texts, bytes, integers and tuples of them.
Told = Any


class _Walk:
    """What a value is, told in texts, bytes, integers and tuples of them, which differ where values do."""

    def __init__(self, room: str) -> None:
        self.room, self.within = room, list[Any]()

    def told(self, value: Any, names: Sequence[str] = ()) -> Told:
        """One value; `names` are those that a function which sees a module may ask it for."""
        kind = type(value)
        if kind in _PLAIN:
            return kind.__name__, value
        if kind is tuple:
            return "tuple", *(self.told(element, names) for element in value)
        if kind in _TOLD:
            return kind.__name__, _TOLD[kind](value)
        if isinstance(value, Dispatcher):
            return self._all(
                "dispatcher", value.py_func, kind.__qualname__, value.targetoptions, value.locals
            )
        if isinstance(value, _Intrinsic):
            return self._all("intrinsic", value._defn, value._prefer_literal, value._ctor_kwargs)
        known = _KNOWN.setdefault(self.room, WeakKeyDictionary())
        if kind is FunctionType and value in known:
            return "function", known[value]
        if any(value is outer for outer in self.within):
            if value is self.within[-1]:
                return "itself", kind.__name__
            raise NoDigestError(f"{kind.__qualname__} that leads to itself by others")
        self.within.append(value)
        try:
            told = self._told_whole(value, names)
        finally:
            self.within.pop()
        if kind is FunctionType:
            known[value] = digest = _digest(told)
            return "function", digest
        return told

    def _all(self, kind: str, *values: Any) -> Told:
        return kind, *map(self.told, values)

    def _told_whole(self, value: Any, names: Sequence[str]) -> Told:
        kind = type(value)
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, ModuleType):
            return self._module(value, names)
        if isinstance(value, type):
            return self._by_name(value, value.__module__, value.__qualname__)
        if isinstance(value, (BuiltinFunctionType, np.ufunc)):
            return self._built_in(value)
        if isinstance(value, (np.ndarray, np.generic)):
            return _array(value)
        if isinstance(value, (Type, ir.Type)) and " at 0x" not in str(value):
            return "type", self.told(kind), str(value)
        if isinstance(value, enum.Enum):
            return self._all("enum", kind, value.name, value.value)
        if isinstance(value, tuple):
            return self._all("named", kind, *value)
        if kind is list:
            return self._all("list", *value)
        if kind is dict:
            return self._all("dict", *value.items())
        if kind in (set, frozenset):
            return "set", *sorted(map(repr, map(self.told, value)))
        if kind is ParallelOptions:
            return self._all("parallel", *(getattr(value, name) for name in ParallelOptions.__slots__))
        if kind is partial:
            return self._all("partial", value.func, value.args, value.keywords)
        if isinstance(value, MethodType):
            return self._all("method", value.__func__, value.__self__)
        if hasattr(value, "cache_parameters"):
            return self._all("cache", value.__wrapped__)
        raise NoDigestError(f"{kind.__qualname__} {value!r}")

    # ---- functions ----

    def _function(self, function: FunctionType) -> Told:
        module, name = str(function.__module__), function.__qualname__
        if not function.__closure__ and _is_of_library(function, module, name):
            return module, name
        code, names, asked = self._code(function.__code__)
        enclosed: list[Told] = []
        seen: list[Told] = []
        for cell in function.__closure__ or ():
            try:
                enclosed.append(self.told(cell.cell_contents, names))
            except ValueError:  # not set yet
                enclosed.append("")
        for one in asked:
            if one in function.__globals__:
                seen.append((one, self.told(function.__globals__[one], names)))
            elif not hasattr(builtins, one):
                seen.append((one,))
        defaults = self.told((function.__defaults__, function.__kwdefaults__))
        return module, name, code, defaults, tuple(enclosed), tuple(seen)

    def _code(self, code: CodeType) -> tuple[Told, tuple[str, ...], list[str]]:
        """A code with those inside of it; all names in them, and those that they ask globals for."""
        names, asked, constants = code.co_names, global_names(code), []
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                inner, names_inside, asked_inside = self._code(constant)
                names += names_inside
                asked += asked_inside
                constants.append(inner)
            else:
                if isinstance(constant, str):  # getattr(module, "name")
                    names += (constant,)
                constants.append(self.told(constant))
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        named = code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        text = code.co_code, getattr(code, "co_exceptiontable", b"")
        return (counts, named, text, tuple(constants)), names, list(dict.fromkeys(asked))

    # ---- what goes by its name ----

    def _module(self, module: ModuleType, names: Sequence[str]) -> Told:
        """A library by its name, another module by its name and what is asked of it."""
        if module.__name__.partition(".")[0] in LIBRARIES:
            return "module", module.__name__
        asked = (name for name in dict.fromkeys(names) if name in vars(module))
        return "module", module.__name__, *((name, self.told(vars(module)[name], names)) for name in asked)

    def _by_name(self, value: Any, module: str, name: str) -> Told:
        """What is known by its name, in a library or in a file of the room."""
        if not _is_of_library(value, module, name):
            is_of_room = self.room and f"{module}.".startswith(f"{self.room}.")
            if not is_of_room or _named(module, name) is not value:
                raise NoDigestError(f"{module}.{name}, which is in no file of {self.room or 'a room'}")
        return "name", type(value).__name__, module, name

    def _built_in(self, function: Any) -> Told:
        owner = getattr(function, "__self__", None)
        if owner is not None and not isinstance(owner, ModuleType):
            return self._all("bound", function.__name__, owner)
        module = "numpy" if isinstance(function, np.ufunc) else str(function.__module__)
        return self._by_name(function, module, function.__name__)


def _digest(told: Told) -> str:
    return sha256(repr(told).encode("utf-8", "surrogatepass")).hexdigest()


def _array(array: Any) -> Told:
    """An array or a scalar of NumPy's: what Numba makes a type and a constant of."""
    if array.dtype.hasobject or (not isinstance(array, np.generic) and type(array) is not np.ndarray):
        raise NoDigestError(f"{type(array).__qualname__} of {array.dtype}")
    flags = array.flags
    layout = flags.c_contiguous, flags.f_contiguous, flags.aligned, flags.writeable
    content = sha256(array.tobytes()).hexdigest()
    return "array", type(array).__name__, repr(array.dtype), array.shape, layout, content


def global_names(code: CodeType) -> list[str]:
    """The names that a code asks the globals for, not codes within it; as `dis` tells them, in a hundredth of
    its time."""
    text, found = code.co_code, []
    for place in range(0, len(text), 2):
        if text[place] == _LOAD:
            number, before, shift = text[place + 1], place - 2, 8
            while before >= 0 and text[before] == dis.EXTENDED_ARG:
                number |= text[before + 1] << shift
                before, shift = before - 2, shift + 8
            found.append(code.co_names[number >> _FLAGS])
    return found


#: The instruction that reads a global, and the bits of its argument below the name's number.
_LOAD, _FLAGS = dis.opmap["LOAD_GLOBAL"], int(sys.version_info >= (3, 11))


def _is_of_library(value: Any, module: str, name: str) -> bool:
    return module.partition(".")[0] in LIBRARIES and _named(module, name) is value


def _named(module: str, name: str) -> Any:
    """What a module that is imported holds under a dotted name; None where it holds nothing so called."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


#: Types whose values Python's text tells, and those of others with it.
_PLAIN = frozenset({type(None), type(Ellipsis), bool, int, str, bytes})
_TOLD: dict[type, Callable[[Any], str]] = {
    range: repr,
    float: lambda value: struct.pack("<d", value).hex(),
    complex: lambda value: struct.pack("<2d", value.real, value.imag).hex(),
    **{type(np.dtype(kind)): repr for kind in np.sctypeDict.values()},
}
