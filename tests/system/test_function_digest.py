"""What a function's digest tells apart, and what has none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import types
from http import HTTPStatus

import numba
import numpy as np
import pytest
from numba.extending import intrinsic

from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.system.function_digest import NoDigestError, function_digest


def made(text, **room):
    """The function f of a text, in a module of its own."""
    module = module_of(**room)
    exec(text, vars(module))
    return module.f


def module_of(**members):
    module = types.ModuleType("drawn")
    vars(module).update(members)
    return module


def seeing(value):
    """A function that reads a global of this value."""
    return made("def f(x): return x + seen", seen=value)


def calling(text, **options):
    """One that calls a compiled function through another."""
    inner = numba.njit(**options)(made(text))
    between = made("def f(x): return inner(x) + 1", inner=inner)
    return made("def f(x): return between(x)", between=numba.njit(between))


def within(value):
    """One that encloses a value in a function that it encloses."""

    def inner(x):
        return x + value

    def f(x):
        return inner(x)

    return f


@intrinsic
def first(typingctx, x):
    return x(x), lambda context, builder, signature, arguments: arguments[0]


@intrinsic(prefer_literal=True)
def second(typingctx, x):
    return x(x), lambda context, builder, signature, arguments: arguments[0]


LARGE = np.arange(5000.0)
OTHER = LARGE.copy()
OTHER[2500] += 1e-9

#: Functions that differ from one another in one thing, by what it is.
APART = {
    "constants": [made(f"def f(x): return x + {c}") for c in ("1", "1.0", "True", "2", "0.0", "-0.0", "1j")],
    "names": [made(f"def f(x): return x.{name}") for name in ("real", "imag", "conj")],
    "arguments": [made(f"def f({names}): return x") for names in ("x", "x, y", "x, *y", "x, *, y", "y, x")],
    "defaults": [made(f"def f(x, {y}=1.0): return x") for y in ("y", "*, y", "y=2.0, z")],
    "nested code": [made(f"def f(x):\n def g(y): return y * {c}\n return g(x)") for c in ("2.0", "3.0")],
    "globals": [
        seeing(v) for v in (1, 1.0, True, np.float32(1), np.float64(1), np.int64(1), "1", (1,), (1.0,))
    ],
    "signs": [seeing(v) for v in (0.0, -0.0, np.float32(0), np.float32(-0.0), 0, complex(0, -0.0), 0j)],
    "arrays": [seeing(v) for v in (LARGE, OTHER, LARGE.astype("f4"), LARGE.reshape(50, 100), LARGE[::2])],
    "layouts": [seeing(v) for v in (np.ones((2, 2)), np.ones((2, 2), order="F"), np.ones((2, 2))[:, ::-1])],
    "others": [
        seeing(v)
        for v in (HTTPStatus.OK, HTTPStatus.CREATED, None, numba.float32, numba.int64, np.dtype("f4"), np.sin)
    ],
    "enclosed": [within(v) for v in (1.0, 2.0, LARGE, OTHER)],
    "calls": [calling(f"def f(x): return x * {c}") for c in ("2.0", "3.0")],
    "options": [
        calling("def f(x): return x", **each)
        for each in ({}, {"fastmath": True}, {"error_model": "numpy"}, {"inline": "always"}, {"nogil": True})
    ],
    "intrinsics": [seeing(first), seeing(second)],
    "modules": [made("def f(x): return x + m.a.b", m=module_of(a=module_of(b=b))) for b in (1.0, 2.0)],
    "modules by text": [made("def f(x): return x + getattr(m, 'a')", m=module_of(a=a)) for a in (1.0, 2.0)],
    "functions": [seeing(made(f"def f(x): return x + {c}")) for c in ("1.0", "2.0")],
}


@pytest.mark.parametrize("what", APART)
def test_functions_that_differ_in_one_thing_have_other_digests(what):
    digests = list(map(function_digest, APART[what]))
    assert len(set(digests)) == len(digests) > 1


def test_equal_functions_have_equal_digests():
    assert function_digest(within(OTHER)) == function_digest(within(OTHER.copy()))
    assert function_digest(calling("def f(x): return x")) == function_digest(calling("def f(x): return x"))
    again = "def f(x): return f(x - 1) if x else 0"
    assert function_digest(made(again)) == function_digest(made(again))
    compiled = [numba.njit(made(again)) for _ in range(2)]
    for each in compiled:
        each.py_func.__globals__["f"] = each
    assert function_digest(compiled[0]) == function_digest(compiled[1])


def test_what_cannot_be_told_by_value_has_no_digest():
    holder: list[object] = [[]]
    holder[0].append(holder)
    one, other = made("def f(x): return g(x)"), made("def f(x): return g(x)")
    one.__globals__["g"], other.__globals__["g"] = other, one
    unnamed = type("Unnamed", (), {})
    for function in (one, *map(seeing, (threading.Lock(), holder, unnamed, np.array([object()])))):
        with pytest.raises(NoDigestError):
            function_digest(function)


#: The digest of every compiled function of the engine.
ALL = """
import gc, json
import bppsa_cupy.plan
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.system.compile_cache import CompileCache
from bppsa_cupy.system.function_digest import function_digest
found, kernels = {}, list(KERNELS.values())
for cache in [one for one in gc.get_objects() if type(one) is CompileCache]:
    found.setdefault(cache._name, []).append(function_digest(cache._dispatcher, cache._room))
print(json.dumps({name: sorted(digests) for name, digests in sorted(found.items())}))
"""


def test_every_function_of_the_engine_has_one_digest_in_all_processes():
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", ALL],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        for seed in "12"
    ]
    ran = [program.communicate(timeout=120)[0] for program in programs]
    assert ran[0] == ran[1]
    found = json.loads(ran[0])
    assert len(found) > 150
    # Of each kind of function that cells are given, built-in cells have their own.
    of_cells = next(digests for name, digests in found.items() if "frames.host.fill." in name)
    assert len(of_cells) == len(set(of_cells)) >= len(FORMS)
