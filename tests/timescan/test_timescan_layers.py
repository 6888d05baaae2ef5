"""The method of net.backward, and the forward method, reach the recurrent layers and are reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import bppsa_cupy as bp

LAYERS = {"RNN": bp.RNN, "GRU": bp.GRU, "LSTM": bp.LSTM}


def make(kind, **how):
    layers = [LAYERS[kind](3, 5, num_layers=2, bidirectional=True, **how)]
    return bp.Sequential(layers, input_shape=(23, 3), dtype="float64", device="host")


def test_all_passes_over_time_fit_the_memory_or_none_is_made(monkeypatch, rng):
    """One of the four would fit twice."""
    net = make("RNN", forward_method="newton")
    host, x, gradient = net.device, rng.standard_normal((4, 23, 3)), rng.standard_normal((4, 23, 10))
    net.forward(x)
    net.backward(gradient, method="linear")
    size = net.last_pass.layers[0].stack.sizes.walk
    taken, free = host.allocated, 2 * size.chunk_bytes(23)
    monkeypatch.setattr(type(host), "free_memory", lambda self: free)
    with pytest.raises(bp.DeviceError, match=rf"takes \d+ bytes, {free // 4} are free for it"):
        net.backward(gradient, method="blelloch")
    size = replace(size, batch=3)
    free = 2 * size.newton_bytes(23)
    with pytest.raises(bp.DeviceError, match=rf"takes \d+ bytes, {free // 4} are free for it"):
        net.forward(x[:3], into=net.last_pass)
    assert host.allocated == taken
    monkeypatch.undo()
    net.forward(x)
    net.backward(2 * gradient, method="linear")
    doubled = net.gradients.to_host()
    net.backward(gradient, method="linear")
    monkeypatch.setattr(type(host), "free_memory", lambda self: 10)
    with pytest.raises(bp.DeviceError, match=r"takes \d+ bytes"):
        net.backward(gradient, method="blelloch")
    net.backward(2 * gradient, method="linear")
    np.testing.assert_equal(net.gradients.to_host(), doubled)
    monkeypatch.undo()
    net.forward(x)
    net.backward(gradient, method="blelloch")
