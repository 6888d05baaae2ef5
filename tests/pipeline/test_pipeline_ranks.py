"""Pipelines over ranks give the bits of one process."""

import mpi
import pipeline_cases
import pytest
from marks import some_rows

CASES = [name for name in vars(pipeline_cases) if name.startswith("case_")]


@pytest.mark.parametrize("size, cases", some_rows((2, CASES), long=[(3, CASES), (5, CASES)]))
def test_cases(size: int, cases: list[str]) -> None:
    assert mpi.run_ranks(size, "pipeline_cases.py", *cases, limit=300).stdout.split() == cases
