"""PyTorch's own tests of its recurrent modules on ours, in a process of their own: what they import chooses a
profile of hypothesis and forbids to set flags of PyTorch's, for the whole process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long


@pytest.mark.usefixtures("pytorch")
def test_pytorchs_own_module_tests_pass() -> None:
    pytest.importorskip("expecttest", reason="torch.testing._internal takes expecttest, of the extra test")
    cases = Path(__file__).parents[1] / "support" / "torch_module_db.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(cases)]
    result = subprocess.run(command, cwd=cases.parent.parent, capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stdout + result.stderr
    passed = re.search(r"(\d+) passed", result.stdout)
    assert passed is not None and int(passed[1]) == 6, result.stdout
