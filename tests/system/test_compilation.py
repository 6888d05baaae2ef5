"""What a first run says while it compiles: a line on stderr, a count on a terminal, else nothing."""

import fcntl
import json
import math
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import numba
import pytest

from bppsa_cupy.system import compilation
from bppsa_cupy.system.compile_cache import CompileCache
from bppsa_cupy.system.compiled import part

pytestmark = pytest.mark.long

#: Compiles two small kernels where they are not in the cache.
PROGRAM = """
import numpy as np
from bppsa_cupy.raw_kernels import KERNELS
from bppsa_cupy.system import compilation
compilation.PATIENCE = {patience}
KERNELS["step_count"].twin(np.zeros(1, np.int32), np.zeros(1, np.int64))
KERNELS["finite_check"].twin(np.zeros(1, np.float32), np.zeros(1, np.int32), 1)
"""


def run(cache, stderr=subprocess.PIPE, patience=0.0, **variables):
    environment = {name: value for name, value in os.environ.items() if name != "BPPSA_QUIET"}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(patience=patience)],
        env={**environment, "XDG_CACHE_HOME": str(cache), **variables},
        stdout=subprocess.PIPE,
        stderr=stderr,
        encoding="utf-8",
        check=True,
    )


def test_one_line_in_a_pipe_and_none_from_the_cache(tmp_path):
    first = run(tmp_path)
    assert first.stderr == (
        "bppsa-cupy compiles its kernels for this machine, once: step_count, … "
        f"(kept in {tmp_path}/bppsa-cupy)\n"
    )
    again = run(tmp_path)
    assert again.stderr == first.stdout == again.stdout == ""


@pytest.mark.parametrize("options", [{"BPPSA_QUIET": "1"}, {"patience": 1e9}], ids=["quiet", "quick"])
def test_nothing_where_it_is_silenced_or_quick(tmp_path, options):
    assert run(tmp_path, **options).stderr == ""


def test_a_count_on_a_terminal(tmp_path):
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with open(terminal, "rb", buffering=0) as shown:
        run(tmp_path, stderr=end)
        os.close(end)
        text = b"".join(iter(lambda: read(shown), b"")).decode()
    line, _, counts = text.partition("\r\n")
    assert line.startswith("bppsa-cupy compiles its kernels for this machine, once: step_count, … (kept in ")
    assert re.search(r"\rstep_count \(0 compiled, 00:\d\d\)", counts)
    assert re.search(r"\rfinite_check \(1 compiled, 00:\d\d\)", counts)
    assert counts.split("\r")[-2].strip() == "" and "\n" not in counts, "the count is wiped off at the end"


def read(terminal):
    try:
        return terminal.read(4096)
    except OSError:  # what a terminal without another end gives
        return b""


#: Two forms of one kernel, which three processes want at the same time; what each compiled.
SHARED = """
import json, sys
import numpy as np
from bppsa_cupy.raw_kernels import KERNELS
twin = KERNELS["finite_check"].twin
print("ready", flush=True)
sys.stdin.readline()
for real in sys.argv[1:]:
    twin(np.ones(3, real), np.zeros(1, np.int32), 3)
print(json.dumps(sum(twin.stats.cache_misses.values())))
"""


def test_processes_that_need_the_same_function_compile_it_once(tmp_path):
    orders = [("float32", "float64"), ("float64", "float32"), ("float32",)]
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", SHARED, *order],
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        for order in orders
    ]
    assert [program.stdout.readline() for program in programs] == ["ready\n"] * 3
    for program in programs:
        program.stdin.write("go\n")
        program.stdin.flush()
    assert sum(json.loads(program.communicate(timeout=120)[0]) for program in programs) == 2
    kept = [file.name for file in (tmp_path / "bppsa-cupy" / "numba").rglob("*finite_check-*")]
    assert len(kept) == 2, kept


def test_a_function_that_does_not_compile_holds_nobody_up(tmp_path):
    def wrong(value):
        return value.no_such_attribute

    for _ in range(2):
        dispatcher = part()(wrong)
        dispatcher.kept = CompileCache(dispatcher, tmp_path)
        with pytest.raises(numba.TypingError):
            dispatcher(1)
        assert not list(tmp_path.iterdir())


def test_functions_that_differ_by_what_they_close_over(tmp_path):
    def adder(number):
        def add(value):
            return value + number

        dispatcher = part()(add)
        dispatcher.kept = CompileCache(dispatcher, tmp_path)
        return dispatcher

    assert [adder(number)(1) for number in (1, 2, 1)] == [2, 3, 2]
    assert len(list(tmp_path.iterdir())) == 2


def test_functions_that_differ_in_a_constant_alone(tmp_path):
    for number in ("1.0", "2.0", "-0.0", "0.0"):
        room = {}
        exec(f"def add(value):\n    return value + {number}", room)
        dispatcher = part()(room["add"])
        dispatcher.kept = CompileCache(dispatcher, tmp_path)
        assert math.copysign(1, dispatcher(-0.0)) == math.copysign(1, -0.0 + float(number))
        assert dispatcher(-0.0) == float(number)


def test_the_compiler_of_a_gpu_says_so_too(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("BPPSA_QUIET", raising=False)
    monkeypatch.setattr(compilation, "_NOTICE", compilation._Notice())
    monkeypatch.setattr(compilation, "PATIENCE", 0.0)
    for name in ("relu_fill", "conv2d_vjp"):
        with compilation.compiling(name, tmp_path):
            pass
    assert capsys.readouterr() == (
        "",
        f"bppsa-cupy compiles its kernels for this machine, once: relu_fill, … (kept in {tmp_path})\n",
    )
