"""Scans and networks over ranks give the bits of one process."""

import mpi
import pytest
import ranks_cases
from marks import some_rows

CASES = [name for name in vars(ranks_cases) if name.startswith("case_")]
#: Those without scans of every length and whole models.
QUICK = [
    f"case_{name}"
    for name in (
        "every_partition_of_a_small_network", "recurrent_networks", "networks_of_one_or_no_layer", "clipping",
        "residual_blocks",
    )
]  # fmt: skip


@pytest.mark.parametrize(
    "size, cases", some_rows((2, QUICK), long=[(size, CASES) for size in (1, 2, 3, 4, 5, 8)])
)
def test_cases(size: int, cases: list[str]) -> None:
    assert mpi.run(size, "ranks_cases.py", *cases, limit=300).stdout.split() == cases
