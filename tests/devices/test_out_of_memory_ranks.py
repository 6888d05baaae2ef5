"""A rank whose device is full ends all ranks, with the named error; on the stand-in for CuPy."""

import re
import time
from pathlib import Path

import mpi
import pytest
from emulator.build import compiler
from memory_cases import NAMED
from mpi import SOON

pytestmark = pytest.mark.long


@pytest.mark.skipif(compiler() is None, reason="the emulated device needs g++")
@pytest.mark.parametrize(("way", "full"), [("layers", 1), ("stages", 0), ("evaluation", 1)])
def test_all_ranks_end(way: str, full: int, tmp_path: Path) -> None:
    """The others wait for it: for an activation, a gradient, or the output."""
    ended = mpi.finish(mpi.start(2, "ranks_out_of_memory.py", way, tmp_path, full), limit=20)
    assert ended.returncode == 1
    word, since = ended.stdout.split()
    assert word == "full" and time.time() - float(since) < SOON
    assert re.fullmatch(f"error: rank {full}: {NAMED.removeprefix('^')}.*\n", ended.stderr)
