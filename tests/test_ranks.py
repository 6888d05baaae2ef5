"""Scans and networks over ranks give the bits of one process."""

import mpi
import pytest
import ranks_cases

CASES = [name for name in vars(ranks_cases) if name.startswith("case_")]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8])
def test_cases(size: int) -> None:
    assert mpi.run(size, "ranks_cases.py", limit=300).stdout.split() == CASES
