"""Threads of a parallel loop: those that wait for one another, and those that take tasks one by one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba import prange

from bppsa_cupy.raw_kernels.twins.threads.barrier import core_of_thread, have_met, meet, new_barrier, wait
from bppsa_cupy.raw_kernels.twins.threads.crew import tasks_of
from bppsa_cupy.system.compiled import compiled

WALK = """
import numba
import numpy as np
import bppsa_cupy as bp

net = bp.Sequential([bp.GRU(3, 256)], input_shape=(5, 3), device="host")
rng = np.random.default_rng(0)
for value in net.parameters.values():
    value[...] = rng.standard_normal(value.shape) / 16
x = rng.standard_normal((BATCH, 5, 3)).astype(np.float32)
output = net.forward(x)
gradient = net.backward(np.ones_like(output), input_gradient=True)
np.savez("OUT", output=output, gradient=gradient, **net.gradients)
"""


@compiled()
def member(barrier, values, seen, rounds, members, number):
    if not meet(barrier, members, number):
        return
    for turn in range(rounds):
        values[turn % 2, number] = turn * members + number
        wait(barrier, members, turn + 1)
        for other in range(members):
            seen[turn, number] += values[turn % 2, other]


@compiled(parallel=True)
def turns(values, seen, rounds, members):
    barrier = new_barrier(members)
    for number in prange(members):
        member(barrier, values, seen, rounds, members, np.int64(number))
    return have_met(barrier)


@pytest.mark.parametrize("rounds", [0, 1, 5000])
def test_what_was_written_before_is_seen_after(rounds: int) -> None:
    members = numba.get_num_threads()
    values, seen = np.zeros((2, members)), np.zeros((rounds, members))
    assert turns(values, seen, rounds, members)
    expected = np.arange(rounds) * members**2 + members * (members - 1) / 2
    np.testing.assert_array_equal(seen, np.broadcast_to(expected[:, None], seen.shape))


def test_members_that_never_come_are_given_up() -> None:
    barrier = new_barrier(2)
    assert not meet(barrier, 2, 0)
    assert not meet(barrier, 2, 1)  # nor does one that comes late find the others
    assert not have_met(barrier)


@pytest.mark.long
@pytest.mark.parametrize("batch", [1, 16])
def test_a_walk_goes_on_without_its_team(batch: int, tmp_path) -> None:
    """OpenMP has one thread where Numba counts two: the same bits, a loop a round."""
    results = []
    for number, more in enumerate(
        (
            {"NUMBA_NUM_THREADS": "1"},
            {"NUMBA_NUM_THREADS": "2"},
            {"NUMBA_NUM_THREADS": "2", "OMP_THREAD_LIMIT": "1"},
        )
    ):
        path = tmp_path / f"{number}.npz"
        text = WALK.replace("BATCH", str(batch)).replace("OUT", str(path))
        subprocess.run([sys.executable, "-c", text], env={**os.environ, **more}, check=True)
        with np.load(path) as file:
            results.append(dict(file))
    for name, array in results[0].items():
        for other in results[1:]:
            np.testing.assert_array_equal(array, other[name], err_msg=name)


# ---- tasks ----


@compiled()
def count(task, done, seen):
    done[task] += 1
    seen[task] = core_of_thread()


in_tasks = tasks_of(count)


@compiled()
def run_tasks(tasks, together, done, seen):
    in_tasks(tasks, together, (done, seen))


def check(tasks: int, together: bool) -> None:
    for _ in range(20):
        done, seen = np.zeros(tasks, np.int64), np.zeros(tasks, np.int64)
        run_tasks(tasks, together, done, seen)
        np.testing.assert_array_equal(done, 1)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("tasks", [0, 1, 2, 3, 64, 1000])
def test_each_task_is_done_once(tasks: int, together: bool) -> None:
    check(tasks, together)


@compiled()
def count_or_raise(task, done):
    if task == 3:
        raise ValueError
    done[task] += 1


in_raising_tasks = tasks_of(count_or_raise)


@compiled()
def run_raising_tasks(tasks, together, done):
    in_raising_tasks(tasks, together, (done,))


def test_a_task_that_fails_is_an_error() -> None:
    done = np.zeros(9, np.int64)
    with pytest.raises(ValueError):
        run_raising_tasks(9, False, done)
    with pytest.raises(MemoryError):
        run_raising_tasks(9, True, done)
    assert done.tolist() == [2, 2, 2, 0, 1, 1, 1, 1, 1]


@pytest.mark.long
def test_one_thread_does_the_tasks_of_all() -> None:
    """OpenMP has one thread where Numba counts two."""
    text = "from test_threads import check; check(64, True)"
    more = {"NUMBA_NUM_THREADS": "2", "OMP_THREAD_LIMIT": "1", "PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run([sys.executable, "-c", text], env={**os.environ, **more}, check=True)
