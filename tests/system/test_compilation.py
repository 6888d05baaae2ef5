"""What a first run says while it compiles: a line on stderr, a count on a terminal, else nothing."""

import json
import os
import subprocess
import sys

import pytest

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
