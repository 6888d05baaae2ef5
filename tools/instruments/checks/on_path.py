"""Puts what the tests share on the path, for programs of this folder, which import this before all else."""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parents[3] / "tests" / "support"))
