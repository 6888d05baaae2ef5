"""Tasks that the threads of a parallel loop take one by one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from bppsa_cupy.raw_kernels.twins.threads.barrier import core_of_thread
from bppsa_cupy.raw_kernels.twins.threads.crew import join, members_of, new_crew, take, tasks_of
from bppsa_cupy.system.compiled import compiled


@compiled()
def count(task, done, seen):
    done[task] += 1
    seen[task] = core_of_thread()


in_tasks = tasks_of(count)


@compiled()
def run(tasks, together, done, seen):
    in_tasks(tasks, together, (done, seen))


def check(tasks: int, together: bool) -> None:
    for _ in range(20):
        done, seen = np.zeros(tasks, np.int64), np.zeros(tasks, np.int64)
        run(tasks, together, done, seen)
        np.testing.assert_array_equal(done, 1)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("tasks", [0, 1, 2, 3, 64, 1000])
def test_each_task_is_done_once(tasks: int, together: bool) -> None:
    check(tasks, together)


def test_a_member_does_what_the_others_have_not_begun() -> None:
    crew = new_crew(7)
    assert members_of(crew) == min(7, numba.get_num_threads())
    join(crew, 0)
    assert sorted(take(crew, 0, 7) for _ in range(7)) == list(range(7))
    assert [take(crew, member, 7) for member in range(members_of(crew))] == [-1] * members_of(crew)


def test_members_have_runs_of_their_own() -> None:
    crew = new_crew(8)
    members = members_of(crew)
    assert [take(crew, m, 8) for m in range(members)] == [8 * m // members for m in range(members)]


def test_one_thread_does_the_tasks_of_all() -> None:
    """OpenMP has one thread where Numba counts two."""
    text = "from test_crew import check; check(64, True)"
    more = {"NUMBA_NUM_THREADS": "2", "OMP_THREAD_LIMIT": "1", "PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run([sys.executable, "-c", text], env={**os.environ, **more}, check=True)
