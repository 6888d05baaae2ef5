"""Compiled forms on disk, as users have them: damaged, cut short, of others, where nothing can be written."""

from __future__ import annotations

import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import numba
import pytest

from bppsa_cupy.system import compile_cache
from bppsa_cupy.system.compile_cache import CompileCache
from bppsa_cupy.system.compiled import part


def plus(number, folder, **options):
    """x + number, its compiled forms kept in a folder; all such functions have one name."""
    room = {"__name__": "json"}  # one that every process has
    exec(f"def plus(x): return x + {number!r}", room)
    function = part(**options)(room["plus"])
    function.kept = Counted(function, folder)
    return function


class Counted(CompileCache):
    """Counts the forms that were found."""

    hits = 0

    def load_overload(self, sig, target_context):
        found = super().load_overload(sig, target_context)
        self.hits += found is not None
        return found


def hits(function):
    return function.kept.hits


def test_a_form_that_is_not_as_it_was_written_is_compiled_anew(tmp_path, monkeypatch):
    plus(1.0, tmp_path)(1.0)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    loads, loaded = pickle.loads, []
    monkeypatch.setattr(compile_cache.pickle, "loads", lambda text: loaded.append(text) or loads(text))
    damaged = [whole[:size] for size in (0, 31, 32, 33, len(whole) // 2, len(whole) - 1)]
    for place in (0, 31, 32, 40, len(whole) // 2, len(whole) - 1):
        damaged.append(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
    damaged += [whole + b"\0", whole[32:]]  # one longer, one of a version without a seal
    for content in damaged:
        file.write_bytes(content)
        again = plus(1.0, tmp_path)
        assert again(1.0) == 2.0 and hits(again) == 0 and not loaded
        assert [one.name for one in tmp_path.iterdir()] == [file.name]
        fresh = plus(1.0, tmp_path)
        assert fresh(1.0) == 2.0 and hits(fresh) == 1 and len(loaded) == 1
        loaded.clear()


#: Compiles or loads x + number for each number, and calls it by its own symbol's address too; the second
#: argument says what to do amid writing.
PROGRAM = """
import ctypes, json, os, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from numba import float64
from test_compile_cache import hits, plus
from bppsa_cupy.raw_kernels.twins.simd.addresses import address_of
numbers = list(map(float, sys.argv[2:]))
if sys.argv[1] == "die":
    os.replace = lambda *paths: os._exit(9)
functions = [plus(number, Path({folder!r})) for number in numbers]
values = [function(1.0) for function in functions]
kind = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
called = [kind(address_of(one, (float64,)))(1.0) for one in functions]
print(json.dumps([values, called, sum(map(hits, functions))]))
"""


def ran(folder, what, *numbers):
    program = PROGRAM.format(tests=str(Path(__file__).parent), folder=str(folder))
    command = [sys.executable, "-c", program, what, *map(str, numbers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", check=False, timeout=120)
    return done.returncode, json.loads(done.stdout or "null")


def test_processes_share_forms_and_keep_them_apart(tmp_path):
    assert ran(tmp_path, "die", 1)[0] == 9  # leaves a temporary file, and its lock
    assert list(tmp_path.iterdir())
    assert ran(tmp_path, "go", 1) == (0, [[2.0], [2.0], 0])
    assert plus(2.0, tmp_path)(1.0) == 3.0
    assert len(list(tmp_path.iterdir())) == 3  # by Python and by its address; by Python
    # Two processes' machine code of equal names, in a third.
    assert ran(tmp_path, "go", 1, 2) == (0, [[2.0, 3.0], [2.0, 3.0], 3])


@pytest.mark.long
def test_an_edit_of_a_source_is_compiled_anew_and_the_older_form_stays(tmp_path):
    """Edits of the function's own file, and of one that it calls, that leave length and time as they were."""
    texts = {
        "own.py": "from bppsa_cupy.system.compiled import compiled\nfrom called import g\n"
        "@compiled()\ndef f(x):\n    return g(x) + 1.0\n",
        "called.py": "from bppsa_cupy.system.compiled import part\n@part()\ndef g(x):\n    return x * 2.0\n",
    }
    kept = tmp_path / "cache"
    environment = {**os.environ, "XDG_CACHE_HOME": str(kept), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", "import own; print(own.f(1.0))"]
    for edit, value, forms in (
        (("", ""), b"3.0", 1),
        (("+ 1.0", "+ 5.0"), b"7.0", 2),
        (("* 2.0", "* 3.0"), b"4.0", 3),
        (("", ""), b"3.0", 3),
    ):
        for name, text in texts.items():
            (tmp_path / name).write_text(text.replace(*edit), encoding="utf-8")
            os.utime(tmp_path / name, (1e9, 1e9))
        found = subprocess.check_output(command, cwd=tmp_path, env=environment)
        assert (found.strip(), len([*kept.rglob("own.f-*")])) == (value, forms)


@pytest.mark.long
def test_a_form_has_its_constants_where_its_function_was_loaded_as_a_part_of_another(tmp_path):
    """An array's dtype is a constant that its function's wrapper for Python alone asks for."""
    (tmp_path / "own.py").write_text(
        "import numpy as np\nfrom bppsa_cupy.system.compiled import compiled\n"
        "@compiled()\ndef made(n):\n    return np.zeros(n)\n"
        "@compiled()\ndef total(n):\n    return made(n).sum()\n",
        encoding="utf-8",
    )
    kept = tmp_path / "cache"
    environment = {**os.environ, "XDG_CACHE_HOME": str(kept)}
    command = [sys.executable, "-c", "import own; print(own.total(2), own.made(3).dtype)"]
    for _ in range(2):
        assert subprocess.check_output(command, cwd=tmp_path, env=environment).split() == [b"0.0", b"float64"]
        assert len([*kept.rglob("own.*")]) == 2


def test_options_settings_and_versions_are_in_the_key(tmp_path, monkeypatch):
    plus(1.0, tmp_path)(1.0)
    for change in range(3):
        if change == 1:
            monkeypatch.setattr(numba.config, "BOUNDSCHECK", 1)
        elif change == 2:
            monkeypatch.setattr(compile_cache, "_here", lambda: ("another machine",))
        other = plus(1.0, tmp_path, fastmath=True)
        assert other(1.0) == 2.0 and hits(other) == 0
    assert len(list(tmp_path.iterdir())) == 4


def test_what_has_no_digest_is_compiled_in_each_process(tmp_path):
    for _ in range(2):
        function = plus(1.0, tmp_path)
        function.py_func.__kwdefaults__ = {"unseen": threading.Lock()}
        assert function(1.0) == 2.0 and hits(function) == 0
        assert not list(tmp_path.iterdir())


@contextmanager
def full_disk(folder):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def read_only(folder):
    root = os.geteuid() == 0
    folder.chmod(0o555)
    try:
        if root:
            os.seteuid(65534)
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)


@pytest.mark.parametrize("lacking", [full_disk, read_only])
def test_where_nothing_can_be_written_forms_are_loaded_or_compiled_in_each_process(lacking):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        plus(1.0, folder)(1.0)
        (file,) = folder.iterdir()
        file.chmod(0o644)
        with lacking(folder):
            known, new = plus(1.0, folder), plus(2.0, folder)
            assert known(1.0) == 2.0 and new(1.0) == 3.0
        assert hits(known) == 1 and hits(new) == 0
        assert list(folder.iterdir()) == [file]
