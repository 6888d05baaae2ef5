"""Residual blocks and batch normalisation over ranks give the bits of one process."""

import mpi
import pytest
import ranks_blocks_cases
from marks import some

CASES = [name for name in vars(ranks_blocks_cases) if name.startswith("case_")]


@pytest.mark.parametrize("size", some(long=(2, 3)))
def test_cases(size: int) -> None:
    assert mpi.run(size, "ranks_blocks_cases.py", limit=300).stdout.split() == CASES
