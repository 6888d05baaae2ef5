"""Walks of several blocks of samples, shared out among threads: the same bits whatever their number."""

from __future__ import annotations

import numba
import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.raw_kernels.frames.host.teams import TOGETHER, together


@pytest.fixture
def on_threads():
    """A call that runs a function on so many threads."""
    before = numba.get_num_threads()

    def run(count, function):
        numba.set_num_threads(count)
        try:
            return function()
        finally:
            numba.set_num_threads(before)

    return run


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_go_together_as_far_as_every_thread_has_some(threads):
    for blocks in range(1, 20):
        for walks in range(1, 4):
            fitting = [
                count
                for count in range(1, TOGETHER + 1)
                if blocks % count == 0 and (count == 1 or blocks // count * walks >= threads)
            ]
            assert together(threads, blocks, walks) == fitting[-1]


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two threads")
@pytest.mark.parametrize("batch", [48, 64, 67])
def test_the_number_of_threads_changes_no_bit(batch, on_threads, rng):
    net = bp.Sequential([bp.LSTM(3, 5)], input_shape=(21, 3), device="host", seed=0)
    x = rng.standard_normal((batch, 21, 3)).astype(np.float32)
    g = rng.standard_normal((batch, 21, 5)).astype(np.float32)

    def run():
        output = net.forward(x)
        by_input = net.backward(g, input_gradient=True)
        return [array.tobytes() for array in (output, by_input, *net.gradients.values())]

    assert on_threads(1, run) == on_threads(2, run)
