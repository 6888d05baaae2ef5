"""RNN, GRU and LSTM against PyTorch: outputs, states and every gradient, whatever the sizes and methods."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from marks import some
from recurrent_reference import compare, reference_of
from tolerances import assert_close

import bppsa_cupy as bp

LAYERS = {
    "RNN": bp.RNN,
    "RNN relu": partial(bp.RNN, nonlinearity="relu"),
    "GRU": bp.GRU,
    "LSTM": bp.LSTM,
}
THREE = ("RNN", "GRU", "LSTM")
EACH = some(*THREE, long=["RNN relu"])


def single(layer, steps=5, dtype="float64", device="host", **options):
    """A network of one layer over sequences of its features."""
    return bp.Sequential([layer], (steps, layer.input_size), dtype=dtype, device=device, **options)


@pytest.mark.parametrize("name", EACH)
@settings(max_examples=25)
@given(
    batch=st.integers(1, 36), steps=st.integers(1, 9), inputs=st.integers(1, 5),
    units=st.integers(1, 44), layers=st.integers(1, 3), bidirectional=st.booleans(), bias=st.booleans(),
    ragged=st.booleans(), outputs=st.sampled_from(["all", "last"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_agrees_with_pytorch(
    name, batch, steps, inputs, units, layers, bidirectional, bias, ragged, outputs, seed
):
    options = {"bias": bias, "bidirectional": bidirectional, "outputs": outputs}
    net = single(LAYERS[name](inputs, units, layers, **options), steps, seed=seed)
    compare(net, batch, steps, ragged, seed)


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("bias, outputs", [(True, "all"), (False, "last")])
def test_devices_agree(name, bias, outputs, device):
    layer = LAYERS[name](2, 6, 2, bidirectional=True, outputs=outputs, bias=bias)
    compare(single(layer, 4, device=device), 3, 4, ragged=True)


@pytest.mark.parametrize("name", THREE)
def test_every_method_gives_the_same(name, device, rng):
    """The serial pass, chunks, and on the host Newton's iteration, with lengths and two directions."""
    steps, ways = 23, [("serial", "bp"), ("serial", "blelloch")]
    if device.name == "host":
        steps, ways = 61, [*ways, ("newton", "hybrid")]
    x, gradient, results = rng.standard_normal((3, steps, 3)), rng.standard_normal((3, 24)), []
    for forward, backward in ways:
        layer = LAYERS[name](3, 12, bidirectional=True, outputs="last", forward_method=forward)
        net = single(layer, steps, device=device, seed=3)
        y = net.device.to_host(net.forward(x, lengths=np.array([steps, 5, 17]))).copy()
        by_input = net.backward(gradient, backward, input_gradient=True)
        results.append({"y": y, "x": net.device.to_host(by_input).copy(), **net.gradients.to_host()})
        assert forward == "serial" or all(": converged" in way for way in net.last_pass.forward_ways)
        assert backward == "bp" or all("chunked" in way for way in net.last_backward.backward_ways)
    for other in results[1:]:
        for key, value in results[0].items():
            assert_close(other[key], value, steps * 12, label=key)


@pytest.mark.parametrize("name", THREE)
def test_what_lies_behind_the_end_counts_for_nothing(name):
    net = single(LAYERS[name](2, 4, 2, bidirectional=True), 6)
    rng = np.random.default_rng(1)
    x, gradient, lengths = rng.standard_normal((2, 6, 2)), rng.standard_normal((2, 6, 8)), [3, 6]
    y = net.forward(x, lengths).copy()
    by_input = np.array(net.backward(gradient, input_gradient=True))
    before = net.gradients.to_host()
    assert not y[0, 3:].any() and not by_input[0, 3:].any()
    x[0, 3:], gradient[0, 3:] = np.nan, np.inf
    assert np.array_equal(net.forward(x, lengths), y)
    assert np.array_equal(net.backward(gradient, input_gradient=True), by_input)
    assert all(np.array_equal(before[name], array) for name, array in net.gradients.items())


def test_any_number_of_steps(rng):
    """One network over sequences of several lengths, whose passes bind the same buffers."""
    net, into = single(bp.GRU(3, 4), None), None
    module = reference_of(net)
    for steps in (5, 2, 9, 2):
        x, gradient = rng.standard_normal((2, steps, 3)), rng.standard_normal((2, steps, 4))
        y, expected = net.forward(x, into=into), module(torch.tensor(x))[0]
        assert_close(y, expected.detach(), 100)
        net.backward(gradient)
        module.zero_grad()
        expected.backward(torch.tensor(gradient))
        assert_close(net.gradients["0.weight_hh_l0"], module.weight_hh_l0.grad, 100)
        into = net.last_pass


@pytest.mark.parametrize("name", THREE)
def test_steady_passes_take_no_memory(name, rng):
    net, x = single(LAYERS[name](2, 4, 2, outputs="last"), 6), rng.standard_normal((3, 6, 2))
    allocated = []
    for _ in range(2):
        net.backward(np.ones_like(net.forward(x, [6, 2, 3], into=net.last_pass)))
        allocated.append(net.device.allocated)
    assert allocated[0] == allocated[1]


@pytest.mark.parametrize("name", EACH)
def test_nan_goes_through(name, dtype):
    net, x = single(LAYERS[name](2, 3), 4, dtype), np.zeros((1, 4, 2), dtype)
    x[0, 2] = np.nan
    y = net.forward(x)
    assert np.isfinite(y[0, :2]).all() and np.isnan(y[0, 2:]).all()


HIDDEN, BATCH = (1, 20, 33, 64, 65, 100, 129, 300, 640, 900, 1024), (1, 4, 7, 16, 33)


@pytest.mark.long
@pytest.mark.parametrize("name", LAYERS)
@settings(max_examples=6)
@given(
    hidden=st.sampled_from(HIDDEN),
    batch=st.sampled_from(BATCH), dtype=st.sampled_from(["float32", "float64"]), ragged=st.booleans(),
)  # fmt: skip
@example(hidden=1024, batch=1, dtype="float32", ragged=False)
@example(hidden=300, batch=33, dtype="float32", ragged=True)
@example(hidden=129, batch=7, dtype="float64", ragged=True)
def test_sizes(name, hidden, batch, dtype, ragged):
    compare(single(LAYERS[name](3, hidden), 4, dtype), batch, 4, ragged)


def test_a_state_on_its_own_is_that_of_the_only_recurrent_layer(rng):
    x = rng.standard_normal((2, 5, 3))
    for layer, count in ((bp.GRU(3, 4), 1), (bp.LSTM(3, 4), 2)):
        net, states = single(layer), tuple(rng.standard_normal((count, 1, 2, 4)))
        state = states if count > 1 else states[0]
        expected = np.array(net.forward(x, states={0: state}))
        np.testing.assert_array_equal(net.forward(x, states=state), expected)
        net.backward(np.ones_like(expected), state_gradients=state)
    two = bp.Sequential([bp.GRU(3, 4), bp.Tanh(), bp.GRU(4, 4)], (5, 3), device="host")
    with pytest.raises(bp.ArgumentError, match=r"2 recurrent .* \{0: ..., 2: ...\}"):
        two.forward(x.astype("float32"), states=np.zeros((1, 2, 4), "float32"))
