"""Scans, networks and pipelines over ranks: what each program of cases says of itself, by so many ranks."""

from types import ModuleType

import mpi
import pipeline_cases
import pytest
import ranks_cases
import time_ranks_cases
from marks import some_rows


def cases_of(program: ModuleType) -> list[str]:
    """Names of a program's cases, in the order in which it runs them."""
    return [name for name in vars(program) if name.startswith("case_")]


#: Those without whole optimizers and buffers, and those of pipelines, in one start of the ranks.
QUICK = [
    f"case_{name}"
    for name in (
        "every_partition_of_a_small_network", "recurrent_networks", "clipping",
        "a_callback_of_one_rank_stops_all", "both_modes_by_every_method",
    )
] + cases_of(pipeline_cases)  # fmt: skip
SIZES = {ranks_cases: (2, 5), time_ranks_cases: (2, 3), pipeline_cases: (5,)}
LONG = [(program.__name__, size, cases_of(program)) for program, sizes in SIZES.items() for size in sizes]


@pytest.mark.parametrize("program, size, cases", some_rows(("ranks_cases", 2, QUICK), long=LONG))
def test_cases(program: str, size: int, cases: list[str]) -> None:
    assert mpi.run_ranks(size, f"{program}.py", *cases, limit=300).stdout.split() == cases
