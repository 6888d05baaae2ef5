"""Scans and networks over ranks give the bits of one process."""

import mpi
import pytest
import ranks_cases
from marks import some

CASES = [name for name in vars(ranks_cases) if name.startswith("case_")]


@pytest.mark.parametrize("size", some(2, long=(1, 3, 4, 5, 8)))
def test_cases(size: int) -> None:
    assert mpi.run(size, "ranks_cases.py", limit=300).stdout.split() == CASES
