"""Pipelines over ranks give the bits of one process."""

import mpi
import pipeline_cases
import pytest
from marks import some

CASES = [name for name in vars(pipeline_cases) if name.startswith("case_")]


@pytest.mark.parametrize("size", some(2, long=(3, 5)))
def test_cases(size: int) -> None:
    assert mpi.run(size, "pipeline_cases.py", limit=300).stdout.split() == CASES
