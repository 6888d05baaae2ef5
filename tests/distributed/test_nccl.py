"""NCCL by the installed CuPy: its binding is loaded, and takes what it is given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"


def test_the_installed_cupys_binding_takes_what_the_transport_gives(tmp_path: Path) -> None:
    pytest.importorskip("cupy")
    library = tmp_path / "libnccl.so.2"
    subprocess.run(["g++", "-shared", "-fPIC", SUPPORT / "nccl_library.cpp", "-o", library], check=True)
    places = {
        "LD_LIBRARY_PATH": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")]),
    }
    program = [sys.executable, "-W", "error::UserWarning", str(SUPPORT / "nccl_program.py")]
    ended = subprocess.run(
        program, env=os.environ | places, capture_output=True, encoding="utf-8", timeout=120
    )
    assert (ended.returncode, ended.stdout) == (0, "agrees\n"), ended.stderr
