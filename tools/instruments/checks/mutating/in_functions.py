"""Putting a fault into the functions of this process: live functions get the code of the changed text.

A function that Numba compiles is compiled anew, and so is every compiled function that calls it, without the
kept code of the functions as they are, and with a look-out for indices beyond an array.
"""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Iterator
from typing import Any

import numba
from numba.core.dispatcher import Dispatcher

from mutating.in_python import mutated
from mutating.mutant import ROOT, Mutant

Place = tuple[str, int, str]


class Functions:
    """The functions of the files that are changed, as they were when this was made."""

    def __init__(self, paths: set[str]) -> None:
        files = {str(ROOT / path): path for path in paths}
        self._live: dict[Place, list[types.FunctionType]] = {}
        self._caches: list[Any] = []
        gc.unfreeze()  # The objects that were frozen are not told of.
        objects = gc.get_objects()
        for one in objects:  # by type, since an `isinstance` asks some objects for their class
            if type(one) is types.FunctionType and one.__code__.co_filename in files:
                code = one.__code__
                place = (files[code.co_filename], code.co_firstlineno, code.co_name)
                self._live.setdefault(place, []).append(one)
            elif type(one) is functools._lru_cache_wrapper:
                if one.__module__.startswith("bppsa_cupy.") and "raw_kernels" not in one.__module__:
                    self._caches.append(one)
        self._compiled = {id(one.py_func): one for one in objects if issubclass(type(one), Dispatcher)}

    def compiled_at(self, mutant: Mutant) -> str | None:
        """The name of the compiled function that a fault is in."""
        for place in self._changed(mutant):
            for function in self._live.get(place, []):
                if id(function) in self._compiled:
                    return function.__name__
        return None

    def put(self, mutant: Mutant) -> bool:
        """Change this process's functions; whether there was one to change. What they kept is forgotten."""
        changed = False
        for place, code in self._changed(mutant).items():
            for function in self._live.get(place, []):
                function.__code__ = code
                changed = True
                if id(function) in self._compiled:
                    self._compile(function)
        for cache in self._caches:
            cache.cache_clear()
        return changed

    def _changed(self, mutant: Mutant) -> dict[Place, types.CodeType]:
        """Code of the outermost functions that a fault is in, by their place."""
        tree = compile(mutated(mutant), str(ROOT / mutant.path), "exec", dont_inherit=True)
        return {
            (mutant.path, code.co_firstlineno, code.co_name): code
            for code in _outermost(tree)
            if code.co_firstlineno <= mutant.line <= _last_line(code)
        }

    def _compile(self, function: types.FunctionType) -> None:
        """New dispatchers for a compiled function and those that call it, in place of the present ones."""
        stale = {id(function)}
        while True:
            names = {self._compiled[one].py_func.__name__ for one in stale}
            more = {one for one, d in self._compiled.items() if names & set(d.py_func.__code__.co_names)}
            if more <= stale:
                break
            stale |= more
        new = {}
        for one in stale:
            old = self._compiled[one]
            options = {**old.targetoptions, "parallel": False, "boundscheck": True}
            new[id(old)] = numba.njit(**{n: v for n, v in options.items() if n != "nopython"})(old.py_func)
        for holder in gc.get_objects():
            if type(holder) is dict and "__name__" in holder and "__builtins__" in holder:
                for name, value in list(holder.items()):
                    if id(value) in new:
                        holder[name] = new[id(value)]


def _outermost(code: types.CodeType) -> Iterator[types.CodeType]:
    """The functions of modules and classes, not those inside of functions."""
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            if one.co_flags & 0x02:  # it has locals of its own: a function, not a class's body
                yield one
            else:
                yield from _outermost(one)


def _last_line(code: types.CodeType) -> int:
    own = [line for _, _, line in code.co_lines() if line]
    inner = [_last_line(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return max([*own, *inner])
