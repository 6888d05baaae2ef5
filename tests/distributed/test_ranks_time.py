"""Networks whose steps lie on several ranks."""

import mpi
import pytest
import time_ranks_cases
from marks import some

CASES = [name for name in vars(time_ranks_cases) if name.startswith("case_")]


@pytest.mark.parametrize("size", some(long=(1, 2, 3, 5)))
def test_cases(size: int) -> None:
    assert mpi.run(size, "time_ranks_cases.py", limit=300).stdout.split() == CASES
