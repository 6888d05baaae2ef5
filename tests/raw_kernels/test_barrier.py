"""Threads that wait for one another inside a parallel loop."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numba
import numpy as np
import pytest
from numba import prange

from bppsa_cupy.raw_kernels.twins.threads.barrier import ARRIVED, have_met, meet, new_barrier, wait
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


@compiled()
def wait_for_a_turn(barrier):
    wait(barrier, 2, 1)


def test_a_long_wait_leaves_the_core_to_others() -> None:
    """Of half a second that one waits for the other it has its core for a part alone."""
    barrier, used = new_barrier(2), []
    barrier[ARRIVED] = 4
    wait_for_a_turn(barrier)  # compiles it
    barrier[ARRIVED] = 2  # both have met

    def waits() -> None:
        before = time.thread_time()
        wait_for_a_turn(barrier)
        used.append(time.thread_time() - before)

    waiter = threading.Thread(target=waits)
    waiter.start()
    time.sleep(0.5)
    assert waiter.is_alive()
    wait_for_a_turn(barrier)
    waiter.join()
    assert used[0] < 0.3


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
        with np.load(path) as found:
            results.append(dict(found))
    for name, array in results[0].items():
        for other in results[1:]:
            np.testing.assert_array_equal(array, other[name], err_msg=name)
