"""Compiled functions: parts of one program, keys, the cache on disk, and plain Numba in their place."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.extending import intrinsic

from bppsa_cupy.system import linking
from bppsa_cupy.system.compiled import part
from bppsa_cupy.system.linking import CompileCache, NoKeyError, function_key

# ---- parts ----


@part()
def square(value):
    return value * value


@part()
def halves(size):
    made = np.empty(size)
    for i in range(size):
        made[i] = square(0.5)
    return made


@part()
def assign(target, source):
    target[1:] = source


def test_python_and_other_compiled_functions_call_a_part():
    @part()
    def quarters(size):
        return halves(size).sum()

    @numba.njit
    def foreign(size):
        return halves(size).sum() + np.zeros(size).sum() + square(2)

    assert quarters(4) == 1
    assert halves(2).tolist() == [0.25, 0.25]
    assert square(3) == 9
    assert foreign(4) == 5


def test_errors_of_parts_reach_python():
    @part()
    def wrong(value):
        return halves(value.no_such_attribute)

    @part()
    def raising(value):
        if value > 2:
            raise ValueError("more than two")
        return value

    with pytest.raises(numba.TypingError, match="no_such_attribute"):
        wrong(1)
    assert raising(2) == 2
    with pytest.raises(ValueError, match="more than two"):
        raising(3)
    target = np.zeros(3)
    assign(target, np.ones(2))
    np.testing.assert_array_equal(target, [0, 1, 1])
    with pytest.raises(ValueError, match="cannot assign slice"):
        assign(target, np.ones(3))


#: Runs tests where an internal name of Numba is missing.
PLAIN = """
import sys
sys.modules["bppsa_cupy.system.linking"] = None
import pytest
sys.exit(pytest.main(["-q", "-n", "0", *sys.argv[1:]]))
"""


@pytest.mark.long
def test_laws_hold_with_plain_numba():
    laws = [
        "tests/layers/test_layers.py",
        "-k",
        "agrees_with_pytorch and host and float32 and (Linear or ReLU)",
    ]
    subprocess.run([sys.executable, "-c", PLAIN, *laws], check=True, cwd=Path(__file__).parents[2])


# ---- keys ----


def made(text, **room):
    exec(text, room)
    return room["f"]


def enclosing(value):
    """A function that encloses a value in a function that it encloses."""

    def inner(x):
        return x + value

    def f(x):
        return inner(x)

    return f


@intrinsic
def first(typingctx, x):
    return x(x), lambda context, builder, signature, arguments: arguments[0]


@intrinsic
def second(typingctx, x):
    return x(x), lambda context, builder, signature, arguments: arguments[0]


#: Functions that differ in one thing.
APART = {
    "constants": [made(f"def f(x): return x + {c}") for c in ("1", "1.0", "True", "2", "0.0", "-0.0", "1j")],
    "names": [made(f"def f(x): return x.{name}") for name in ("real", "imag", "conj")],
    "arguments": [made(f"def f({names}): return x") for names in ("x", "x, y", "x, *y", "x, *, y", "y, x")],
    "defaults": [made(f"def f(x, {y}=1.0): return x") for y in ("y", "*, y", "y=2.0, z")],
    "nested code": [made(f"def f(x):\n def g(y): return y * {c}\n return g(x)") for c in ("2.0", "3.0")],
    "numbers": [enclosing(v) for v in (1, 1.0, True, np.float32(1), np.float64(1), "1", (1,), (1.0,), 2.0)],
    "signs": [enclosing(v) for v in (0.0, -0.0, np.float32(0), np.float32(-0.0), 0, complex(0, -0.0), 0j)],
    "arrays": [enclosing(v) for v in (np.arange(5.0), np.arange(5.0) + 1e-9, np.arange(5, dtype="f4"))],
    "types": [enclosing(v) for v in (None, numba.float32, numba.int64, np.dtype("f4"), np.float32)],
    "compiled": [enclosing(numba.njit(**each)(square.py_func)) for each in ({}, {"fastmath": True})],
    "functions": [enclosing(made(f"def f(x): return x + {c}")) for c in ("1.0", "2.0")],
    "intrinsics": [enclosing(first), enclosing(second)],
}


@pytest.mark.parametrize("name", APART)
def test_functions_that_differ_in_one_thing_have_other_keys(name):
    keys = [repr(function_key(function)) for function in APART[name]]
    assert len(set(keys)) == len(keys) > 1


def test_a_value_without_a_text_has_no_key():
    for value in (threading.Lock(), np.array([object()]), pytest):
        with pytest.raises(NoKeyError):
            function_key(enclosing(value))


#: The keys of every compiled function of the engine.
ALL = """
import gc, json
import bppsa_cupy.plan
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.system.linking import CompileCache, function_key
found, kernels = {}, list(KERNELS.values())
for cache in [one for one in gc.get_objects() if type(one) is CompileCache]:
    found.setdefault(cache._name, []).append(repr(function_key(cache._dispatcher)))
print(json.dumps({name: sorted(keys) for name, keys in sorted(found.items())}))
"""


@pytest.mark.long
def test_functions_of_the_engine_have_one_key_in_all_processes():
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", ALL], env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE
        )
        for seed in "12"
    ]
    ran = [json.loads(program.communicate(timeout=120)[0]) for program in programs]
    assert ran[0] == ran[1] and len(ran[0]) > 100
    assert all(len(keys) == len(set(keys)) for keys in ran[0].values())


# ---- the cache on disk ----


class Counted(CompileCache):
    hits = 0

    def load_overload(self, sig, target_context):
        loaded = super().load_overload(sig, target_context)
        self.hits += loaded is not None
        return loaded


def plus(number, folder, **options):
    """x + number, its compiled forms stored in a folder; all such functions have one name."""
    room = {"__name__": "json"}  # a module of every process
    exec(f"def plus(x): return x + {number!r}", room)
    function = part(**options)(room["plus"])
    function.store = Counted(function, folder)
    return function


def test_a_damaged_form_is_compiled_anew(tmp_path, monkeypatch):
    plus(1.0, tmp_path)(1.0)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    loads, loaded = pickle.loads, []
    monkeypatch.setattr(linking.pickle, "loads", lambda text: loaded.append(text) or loads(text))
    damaged = [content[:size] for size in (0, 32, len(content) - 1)] + [content + b"\0", content[32:]]
    for place in (0, 31, 32, len(content) // 2):
        damaged.append(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
    for text in damaged:
        file.write_bytes(text)
        again = plus(1.0, tmp_path)
        assert again(1.0) == 2.0 and again.store.hits == 0 and not loaded
    fresh = plus(1.0, tmp_path)
    assert fresh(1.0) == 2.0 and fresh.store.hits == 1 and len(loaded) == 1


#: Compiles or loads x + number for each number, and calls it by its address too.
PROGRAM = """
import ctypes, json, os, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from numba import float64
from test_compiled import plus
from bppsa_cupy.raw_kernels.twins.simd.addresses import address_of
numbers = list(map(float, sys.argv[2:]))
if sys.argv[1] == "die":
    os.replace = lambda *paths: os._exit(9)
functions = [plus(number, Path({folder!r})) for number in numbers]
values = [function(1.0) for function in functions]
kind = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
called = [kind(address_of(function, (float64,)))(1.0) for function in functions]
print(json.dumps([values, called, sum(function.store.hits for function in functions)]))
"""


def run_program(folder, action, *numbers):
    program = PROGRAM.format(tests=str(Path(__file__).parent), folder=str(folder))
    command = [sys.executable, "-c", program, action, *map(str, numbers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", check=False, timeout=120)
    return done.returncode, json.loads(done.stdout or "null")


def test_processes_share_forms_and_keep_them_apart(tmp_path):
    assert run_program(tmp_path, "die", 1)[0] == 9  # leaves a temporary file
    assert run_program(tmp_path, "go", 1) == (0, [[2.0], [2.0], 0])
    assert plus(2.0, tmp_path)(1.0) == 3.0
    # Two processes' machine code of equal names, in a third.
    assert run_program(tmp_path, "go", 1, 2) == (0, [[2.0, 3.0], [2.0, 3.0], 3])


@pytest.mark.long
def test_an_edit_of_a_source_is_compiled_anew_and_the_older_form_stays(tmp_path):
    """Edits that leave the length and the time of a file as they were. An array's dtype is a constant that
    only the wrapper for Python asks for."""
    (tmp_path / "own.py").write_text(
        "import numpy as np\nfrom bppsa_cupy.system.compiled import compiled\n"
        "@compiled()\ndef made(n):\n    return np.zeros(n)\n"
        "@compiled()\ndef total(n):\n    return made(n).sum() + 1.0\n"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", "import own; print(own.total(2), own.made(3).dtype)"]
    text = (tmp_path / "own.py").read_text()
    for value, forms in (("1.0", 2), ("5.0", 4), ("1.0", 4)):
        (tmp_path / "own.py").write_text(text.replace("1.0", value))
        os.utime(tmp_path / "own.py", (1e9, 1e9))
        output = subprocess.check_output(command, cwd=tmp_path, env=environment, encoding="utf-8")
        assert output.split() == [value, "float64"]
        assert len([*(tmp_path / "cache").rglob("own.*")]) == forms


def test_options_settings_and_versions_are_in_the_key(tmp_path, monkeypatch):
    plus(1.0, tmp_path)(1.0)
    for change in range(3):
        if change == 1:
            monkeypatch.setattr(numba.config, "BOUNDSCHECK", 1)
        elif change == 2:
            monkeypatch.setattr(linking, "_environment", lambda: ("another machine",))
        other = plus(1.0, tmp_path, fastmath=True)
        assert other(1.0) == 2.0 and other.store.hits == 0
    assert len(list(tmp_path.iterdir())) == 4
