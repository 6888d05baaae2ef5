"""The method of net.backward, and the forward method, reach the recurrent layers and are reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tolerances import assert_close

import bppsa_cupy as bp

LAYERS = {"RNN": bp.RNN, "GRU": bp.GRU, "LSTM": bp.LSTM}


def make(kind, **how):
    layers = [LAYERS[kind](3, 5, num_layers=2, bidirectional=True, **how)]
    return bp.Sequential(layers, input_shape=(23, 3), dtype="float64", device="host")


@pytest.mark.parametrize("kind", LAYERS)
def test_every_method_gives_the_same_gradients(kind, rng):
    x, gradient = rng.standard_normal((4, 23, 3)), rng.standard_normal((4, 23, 10))
    net, found = make(kind), {}
    for method in ("bp", "linear", "blelloch", "hybrid", "auto"):
        if method not in ("bp", "auto"):
            net.use(net.plan(batch_size=4))
        net.forward(x, lengths=np.array([23, 1, 9, 20]))
        by_input = net.backward(gradient, method=method, input_gradient=True)
        found[method] = {name: np.array(array) for name, array in net.gradients.items()}
        found[method]["input"] = np.array(by_input)
        scans = net.last_backward.backward_ways
        assert len(scans) == 4 and scans[0].startswith(f"0 {kind} l0: ") and "l1_reverse: " in scans[3]
        chunked = method in ("blelloch", "hybrid")
        assert all(("chunked, " in line) == chunked and "(" in line for line in scans)
    for method, arrays in found.items():
        for name, array in arrays.items():
            assert_close(array, found["bp"][name], 1e4, what=f"{name} by {method}")


@pytest.mark.parametrize("kind", LAYERS)
def test_the_forward_method_changes_no_output(kind, rng):
    x, lengths = rng.standard_normal((3, 23, 3)), np.array([23, 4, 11])
    outputs = {}
    for method in ("serial", "newton", "quasi-newton", "auto"):
        net = make(kind, forward_method=method)
        outputs[method] = np.array(net.forward(x, lengths=lengths))
        walks = net.last_pass.layers[0].forward_ways
        assert len(walks) == 4
        assert all((f" {method} over" in line) == ("newton" in method) for line in walks)
    for output in outputs.values():
        assert_close(output, outputs["serial"], 1e4)


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


def test_launches_of_a_method_are_bound_once(monkeypatch, rng):
    net, gradient = make("GRU"), rng.standard_normal((2, 23, 10))
    net.forward(rng.standard_normal((2, 23, 3)))
    bound, bind = [], type(net.device).bind

    def counted(self, kernel, *given):
        bound.append(kernel)
        return bind(self, kernel, *given)

    monkeypatch.setattr(type(net.device), "bind", counted)
    for method in ("linear", "blelloch", "linear"):
        for again in (False, True):
            net.backward(gradient, method=method)
            assert bool(bound) is not again
            bound.clear()


def test_an_unknown_forward_method_is_named():
    with pytest.raises(bp.ShapeError, match=r"forward_method='parallel'.*'newton'"):
        bp.RNN(1, 1, forward_method="parallel")
