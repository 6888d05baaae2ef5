"""Python calls from `net.backward` to its last launch."""

import sys

import numpy as np
import pytest

import bppsa_cupy as bp

#: Layers, input shape, and the most calls of a first and of a later backward pass.
NETWORKS = {
    "RNN": ([bp.RNN(3, 4), bp.Linear(4, 2)], (5, 3), 120, 60),
    "CNN": ([bp.Conv2d(1, 2, 3), bp.ReLU(), bp.Flatten(), bp.Linear(8, 3)], (1, 4, 4), 85, 75),
}

#: Files whose functions launch kernels.
LAUNCHES = "raw_kernels", "devices/order.py", "devices/host.py"


def count_calls(net, gradient):
    """The number of calls up to the last one of a launch's own code."""
    calls = last = 0

    def count(frame, event, argument):
        nonlocal calls, last
        if event == "call":
            calls += 1
            if any(path in frame.f_code.co_filename for path in LAUNCHES):
                last = calls

    sys.setprofile(count)
    try:
        net.backward(gradient)
    finally:
        sys.setprofile(None)
    return last


@pytest.mark.parametrize("name", NETWORKS)
def test_calls_of_a_backward_pass(name):
    layers, shape, first, later = NETWORKS[name]
    x = np.ones((2, *shape))
    counts = []
    for _ in range(2):  # the first network loads its kernels
        net = bp.Sequential(layers, shape, dtype="float64", seed=0, device="host")
        y = net.forward(x)
        counts = [count_calls(net, np.ones_like(y))]
        for _ in range(2):
            net.forward(x, into=net.last_pass)
            counts.append(count_calls(net, np.ones_like(y)))
    assert counts[0] <= first and counts[-1] <= later, counts
