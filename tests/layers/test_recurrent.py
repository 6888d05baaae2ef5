"""Recurrent layers against PyTorch: outputs, states and every gradient, over generated sizes and settings."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recurrent_reference import compare, reference_of
from tolerances import assert_close

import bppsa_cupy as bp

LAYERS = {
    "RNN": lambda *a, **k: bp.RNN(*a, **k),
    "RNN relu": lambda *a, **k: bp.RNN(*a, nonlinearity="relu", **k),
    "GRU": bp.GRU,
    "LSTM": bp.LSTM,
}


@pytest.mark.parametrize("name", LAYERS)
@settings(max_examples=20)
@given(
    batch=st.integers(1, 36),
    steps=st.integers(1, 9),
    inputs=st.integers(1, 5),
    hidden=st.integers(1, 21),
    layers=st.integers(1, 3),
    bidirectional=st.booleans(),
    bias=st.booleans(),
    ragged=st.booleans(),
    outputs=st.sampled_from(["all", "last"]),
    seed=st.integers(0, 99),
)
def test_agrees_with_pytorch(
    name, batch, steps, inputs, hidden, layers, bidirectional, bias, ragged, outputs, seed
):
    layer = LAYERS[name](inputs, hidden, layers, bias=bias, bidirectional=bidirectional, outputs=outputs)
    net = bp.Sequential([layer], (steps, inputs), seed=seed, dtype="float64", device="host")
    compare(net, batch, steps, ragged, seed)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("hidden, batch", [(1, 1), (20, 16), (33, 17), (64, 5), (100, 2)])
def test_sizes_in_float32(name, hidden, batch):
    layer = LAYERS[name](3, hidden)
    net = bp.Sequential([layer], (12, 3), dtype="float32", device="host")
    compare(net, batch, 12, ragged=batch > 1)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("outputs", ["all", "last"])
def test_devices_agree(name, outputs, device):
    layer = LAYERS[name](2, 5, 2, bidirectional=True, outputs=outputs)
    net = bp.Sequential([layer], (4, 2), dtype="float64", device=device)
    compare(net, 3, 4, ragged=True)


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_gradients_enter_at_one_step(name):
    """A gradient at step t alone is that of the sequence cut behind t."""
    net = bp.Sequential([LAYERS[name](2, 4)], (None, 2), dtype="float64", device="host")
    x = np.random.default_rng(1).standard_normal((3, 9, 2))
    one = np.random.default_rng(2).standard_normal((3, 4))
    gradient = np.zeros_like(net.forward(x))
    gradient[:, 5] = one
    by_input = np.array(net.backward(gradient, input_gradient=True))
    whole = net.gradients.to_host()
    cut = np.zeros_like(net.forward(x[:, :6]))
    cut[:, 5] = one
    assert_close(by_input[:, :6], net.backward(cut, input_gradient=True), 36)
    assert not by_input[:, 6:].any()
    for name, array in net.gradients.items():
        assert_close(whole[name], array, 100)


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_what_lies_behind_the_end_counts_for_nothing(name):
    net = bp.Sequential([LAYERS[name](2, 4, 2, bidirectional=True)], (6, 2), dtype="float64", device="host")
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


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_parameters_are_pytorchs(name):
    layer = LAYERS[name](3, 4, 2, bidirectional=True)
    net = bp.Sequential([layer, bp.Linear(8, 2)], (5, 3), device="host", dtype="float64")
    module = torch.nn.Sequential(
        getattr(torch.nn, name)(3, 4, 2, bidirectional=True, batch_first=True), torch.nn.Linear(8, 2)
    )
    assert list(net.parameters) == [name for name, _ in module.named_parameters()]
    net.load_state_dict(module.state_dict())
    x = torch.randn(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    module.double()
    assert_close(net.forward(x), module[1](module[0](x)[0]).detach(), 100)


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_layer_is_called_as_pytorchs_module(name, batch_first):
    layer = LAYERS[name](3, 4, 2, bidirectional=True, batch_first=batch_first)
    net = bp.Sequential([layer], (5, 3), device="host", dtype="float64")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 5, 3))
    states = tuple(rng.standard_normal((4, 2, 4)) for _ in range(layer.cell.states))
    state = states if len(states) > 1 else states[0]
    module = reference_of(net)
    handed = x if batch_first else np.ascontiguousarray(x.swapaxes(0, 1))
    expected, final = module(torch.tensor(handed), torch.utils._pytree.tree_map(torch.tensor, state))
    before = net.last_pass
    y, got = net[0](handed, state)
    assert_close(y, expected.detach(), 100)
    for one, other in zip(got, final, strict=True):
        assert_close(one, other.detach(), 100)
    assert net.last_pass is before
    without = module(torch.tensor(handed))[0].detach()
    assert_close(net[0](handed)[0], without, 100)
    # Over a network, sequences are (B, T, F) whatever batch_first says.
    assert_close(net.forward(x), without if batch_first else without.swapaxes(0, 1), 100)


def test_a_network_is_a_sequence_of_its_layers(rng):
    net = bp.Sequential(
        [bp.RNN(3, 4, outputs="last"), bp.Linear(4, 2)], (None, 3), device="host", dtype="float64"
    )
    assert len(net) == 2 and [bound.layer for bound in net] == list(net.layers)
    assert repr(net[-1]) == repr(net.layers[1])
    x = rng.standard_normal((2, 5, 3))
    assert np.array_equal(net[1](net[0](x, lengths=[2, 5])[0]), net.forward(x, [2, 5]))
    with pytest.raises(IndexError):
        net[2]


def test_any_number_of_steps(rng):
    net = bp.Sequential([bp.GRU(3, 4), bp.Linear(4, 2), bp.Tanh()], (None, 3), device="host", dtype="float64")
    assert net.output_shape == (None, 2)
    module = reference_of(bp_first(net))
    into = None
    for steps in (5, 2, 9, 2):
        x = rng.standard_normal((2, steps, 3))
        y = net.forward(x, into=into)
        weight, bias = (torch.tensor(net.parameters[f"1.{name}"]) for name in ("weight", "bias"))
        expected = torch.tanh(torch.nn.functional.linear(module(torch.tensor(x))[0], weight, bias))
        assert_close(y, expected.detach(), 100)
        gradient = rng.standard_normal(y.shape)
        net.backward(gradient)
        module.zero_grad()
        expected.backward(torch.tensor(gradient))
        assert_close(net.gradients["0.weight_hh_l0"], module.weight_hh_l0.grad, 100)
        into = net.last_pass


def bp_first(net):
    """A network of the first layer alone, with its parameters."""
    first = bp.Sequential([net.layers[0]], net.input_shape, device="host", dtype=net.dtype)
    first.load_state_dict({name: a for name, a in net.state_dict().items() if name.startswith("0.")})
    return first


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_steady_passes_take_no_memory(name, rng):
    net = bp.Sequential([LAYERS[name](2, 4, 2, outputs="last"), bp.Linear(4, 2)], (6, 2), device="host")
    x = rng.standard_normal((3, 6, 2)).astype("float32")

    def step():
        net.backward(np.ones_like(net.forward(x, [6, 2, 3], into=net.last_pass)))

    step()
    allocated = net.device.allocated
    step()
    assert net.device.allocated == allocated


def test_gradients_do_not_depend_on_the_order_of_calls(rng):
    """The input's gradient is that of the gradient it is given, whatever was asked before."""
    net = bp.Sequential([bp.LSTM(2, 3)], (4, 2), device="host", dtype="float64")
    net.forward(rng.standard_normal((2, 4, 2)))
    layer, state = net.layers[0], net.last_pass.layers[0]
    one, other = rng.standard_normal((2, 2, 4, 3))
    alone = layer.vjp(state, one).copy()
    layer.parameter_gradients(state, one)
    assert np.array_equal(layer.vjp(state, one), alone)
    layer.parameter_gradients(state, one)
    assert not np.array_equal(layer.vjp(state, other), alone)
    one[...] = other
    assert not np.array_equal(layer.vjp(state, one), alone)


def test_a_scan_over_layers_stops_at_the_recurrent_one(rng):
    layers = [bp.Linear(2, 3), bp.Tanh(), bp.GRU(3, 4, outputs="last"), bp.Linear(4, 5), bp.ReLU()]
    net = bp.Sequential(layers, (4, 2), device="host", dtype="float64")
    y = net.forward(rng.standard_normal((2, 4, 2)))
    gradient = rng.standard_normal(y.shape)
    net.backward(gradient, method="bp")
    expected = net.gradients.to_host()
    net.use(net.plan(batch_size=2))
    net.backward(gradient, method="blelloch")
    for name, array in net.gradients.items():
        assert_close(array, expected[name], 20)


def test_nan_goes_through(rng):
    for layer in (bp.RNN(2, 3), bp.RNN(2, 3, nonlinearity="relu"), bp.GRU(2, 3), bp.LSTM(2, 3)):
        for dtype in ("float32", "float64"):
            net = bp.Sequential([layer], (4, 2), device="host", dtype=dtype)
            x = np.zeros((1, 4, 2), dtype)
            x[0, 2] = np.nan
            y = net.forward(x)
            assert np.isfinite(y[0, :2]).all() and np.isnan(y[0, 2:]).all()
