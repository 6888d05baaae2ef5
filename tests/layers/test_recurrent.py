"""Recurrent layers against PyTorch: outputs, states and every gradient, whatever the sizes and the number of
threads; and what they and networks over sequences refuse."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from cell_reference import MAKES, compare_with_autograd
from hypothesis import example, given, settings
from hypothesis import strategies as st
from marks import some
from recurrent_reference import compare, reference_of
from tolerances import assert_close

import bppsa_cupy as bp

LAYERS = {
    "RNN": lambda *a, **k: bp.RNN(*a, **k),
    "RNN relu": lambda *a, **k: bp.RNN(*a, nonlinearity="relu", **k),
    "GRU": bp.GRU,
    "LSTM": bp.LSTM,
}
IN_FLOAT64 = {"dtype": "float64", "device": "host"}


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


@pytest.mark.parametrize("name", some("RNN", long=[name for name in LAYERS if name != "RNN"]))
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
    net = bp.Sequential([LAYERS[name](2, 4, 2, outputs="last"), bp.Linear(4, 2)], (6, 2), **IN_FLOAT64)
    x = rng.standard_normal((3, 6, 2))

    def step():
        net.backward(np.ones_like(net.forward(x, [6, 2, 3], into=net.last_pass)))

    step()
    allocated = net.device.allocated
    step()
    assert net.device.allocated == allocated


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


def test_nan_goes_through(dtype):
    for layer in (bp.RNN(2, 3), bp.RNN(2, 3, nonlinearity="relu"), bp.GRU(2, 3), bp.LSTM(2, 3)):
        net = bp.Sequential([layer], (4, 2), device="host", dtype=dtype)
        x = np.zeros((1, 4, 2), dtype)
        x[0, 2] = np.nan
        y = net.forward(x)
        assert np.isfinite(y[0, :2]).all() and np.isnan(y[0, 2:]).all()


HIDDEN, BATCH = (1, 20, 33, 64, 65, 100, 129, 300, 640, 900, 1024), (1, 4, 7, 16, 33)


CELLS = {
    "rnn": (bp.RNN, compare),
    "rnn relu": (partial(bp.RNN, nonlinearity="relu"), compare),
    "gru": (bp.GRU, compare),
    "lstm": (bp.LSTM, compare),
    **{name: (make, partial(compare_with_autograd, step=step)) for name, (make, step) in MAKES.items()},
}


def divisors(hidden: int) -> list[int]:
    """How many heads a layer of so many units may have."""
    return [heads for heads in range(1, hidden + 1) if hidden % heads == 0]


@pytest.mark.long
@pytest.mark.parametrize("name", CELLS)
@settings(max_examples=6)
@given(
    sizes=st.sampled_from(HIDDEN).flatmap(lambda h: st.tuples(st.just(h), st.sampled_from(divisors(h)))),
    batch=st.sampled_from(BATCH),
    dtype=st.sampled_from(["float32", "float64"]),
    ragged=st.booleans(),
)
@example(sizes=(1024, 1), batch=1, dtype="float32", ragged=False)
@example(sizes=(300, 1), batch=33, dtype="float32", ragged=True)
@example(sizes=(129, 1), batch=7, dtype="float64", ragged=True)
def test_sizes(name, sizes, batch, dtype, ragged):
    make, compared = CELLS[name]
    hidden, heads = sizes
    net = bp.Sequential([make(3, hidden, heads=heads)], (4, 3), dtype=dtype, device="host")
    compared(net, batch=batch, steps=4, ragged=ragged)


X = np.zeros((2, 5, 3), "float32")


def net(layer=None, steps=5, dtype="float32"):
    return bp.Sequential([layer or bp.GRU(3, 4), bp.Linear(4, 2)], (steps, 3), dtype=dtype, device="host")


ARGUMENTS = [
    (lambda: bp.RNN(3, 0), r"RNN got hidden_size=0: it takes an integer of at least 1"),
    (lambda: bp.GRU(0, 3), r"GRU got input_size=0"),
    (lambda: bp.LSTM(3, 4, 0), r"num_layers=0"),
    (lambda: bp.RNN(3, 4.7), r"RNN got hidden_size=4.7: it takes an integer"),
    (lambda: bp.GRU(3, "4"), r"GRU got hidden_size='4': it takes an integer"),
    (lambda: bp.LSTM(3, None), r"LSTM got hidden_size=None: it takes an integer"),
    (lambda: bp.LSTM(3, float("nan")), r"LSTM got hidden_size=nan: it takes an integer"),
    (lambda: bp.RNN(3, 4, bias="no"), r"RNN got bias='no': it takes True or False"),
    (lambda: bp.GRU(3, 4, bidirectional=2), r"bidirectional=2: it takes True or False"),
    (lambda: bp.GRU(3, 4, batch_first=None), r"batch_first=None: it takes True or False"),
    (lambda: bp.GRU(3, 4, dropout="x"), r"dropout='x': it takes 0.0 alone"),
    (lambda: bp.GRU(3, 4, dropout=float("nan")), r"dropout=nan: it takes 0.0 alone"),
    (lambda: bp.RNN(3, 4, nonlinearity=["tanh"]), r"nonlinearity=\['tanh'\]: it takes 'tanh' or 'relu'"),
    (lambda: bp.GRU(3, 4, dropout=0.5), r"dropout=0.5: it takes 0.0 alone"),
    (lambda: bp.LSTM(3, 4, proj_size=2), r"proj_size=2: it takes 0 alone"),
    (lambda: bp.RNN(3, 4, nonlinearity="gelu"), r"nonlinearity='gelu': it takes 'tanh' or 'relu'"),
    (lambda: bp.RNN(3, 4, outputs="first"), r"outputs='first': it takes 'all' or 'last'"),
    (lambda: net(steps=0), r"\(0, 3\)"),
    (lambda: bp.Sequential([bp.RNN(3, 4)], (5, 2)), r"layer 0: RNN\(3, 4\) got input \(5, 2\).*\(T, 3\)"),
    (lambda: bp.Sequential([bp.RNN(3, 4)], (3,)), r"got input \(3,\)"),
    (lambda: bp.Sequential([bp.RNN(3, 4), bp.Flatten()], (None, 3)), r"layer 1: Flatten.*needs T"),
]


@pytest.mark.parametrize("make, message", ARGUMENTS, ids=[message for _, message in ARGUMENTS])
def test_arguments(make, message):
    with pytest.raises(bp.ShapeError, match=message):
        make()


SEQUENCES = [
    (lambda n: n.forward(X, lengths=[5, 6]), r"sample 1 has length 6: a length is from 1 to T = 5"),
    (lambda n: n.forward(X, lengths=[0, 5]), r"sample 0 has length 0"),
    (lambda n: n.forward(X, lengths=[-1, 5]), r"sample 0 has length -1"),
    (
        lambda n: n.forward(X, lengths=[5]),
        r"int64 of shape \(1,\): a batch of 2 takes integers of shape \(2,\)",
    ),
    (lambda n: n.forward(X, lengths=[1.0, 2.0]), r"lengths are float64"),
    (lambda n: n.forward(X[:, :4]), r"input of shape \(2, 4, 3\): it takes \(B, 5, 3\)"),
    (lambda n: n.forward(X, states={1: X}), r"layer 1, which is Linear.*recurrent layers alone"),
    (lambda n: n.forward(X, states={7: X}), r"layer 7, which is None"),
    (lambda n: n.forward(X, states={0: np.zeros((1, 2, 5), "f")}), r"shape \(1, 2, 5\).*shape \(1, 2, 4\)"),
    (
        lambda n: n.forward(X, states={0: np.full((1, 2, 4), 0.1)}),
        r"GRU takes the initial state of float32 and got float64, of which .*: convert it, as h.astype",
    ),
    (lambda n: n.forward(X, states={0: (X, X)}), r"got 2 arrays as the initial state: it takes one array"),
    (lambda n: n[1](X[:, 0, :2], state=1), r"Linear.*got a state or lengths"),
    (lambda n: n[0](X[:0]), r"B must be at least 1"),
    (lambda n: n[0](X[0]), r"shape \(5, 3\), which lacks the batch: it takes \(B, T, 3\); x\[None\]"),
    (lambda n: n[0](X[:, :0]), r"T must be at least 1"),
    (lambda n: n.forward(X, states={"0": X}), r"the initial state was given for '0': .*index, an integer"),
    (lambda n: n.forward(X, states=X), r"shape \(2, 5, 3\): it takes float32 of shape \(1, 2, 4\)"),
    (
        lambda n: n[0](X.astype("d") + 1e-12),
        r"takes input of float32 and got float64, of which float32 cannot",
    ),
    (lambda n: n[0](X[:, :, :2]), r"it takes sequences \(T, 3\)"),
    (lambda n: n[0](X, lengths=[9, 1]), r"sample 0 has length 9"),
]


@pytest.mark.parametrize("call, message", SEQUENCES, ids=[message for _, message in SEQUENCES])
def test_sequences(call, message):
    with pytest.raises(bp.ShapeError, match=message):
        call(net())


def test_an_lstm_takes_a_pair_of_states():
    x, state = np.zeros((2, 5, 3)), np.zeros((1, 2, 4))
    lstm = net(bp.LSTM(3, 4), dtype="float64")
    with pytest.raises(bp.ShapeError, match="got 1 arrays as the initial state: it takes a pair"):
        lstm.forward(x, states={0: state})
    lstm.forward(x, states={0: (state, state)})
    with pytest.raises(bp.ShapeError, match="as the gradient by the final state"):
        lstm.backward(np.zeros((2, 5, 2)), state_gradients={0: state})


def test_a_state_on_its_own_is_that_of_the_only_recurrent_layer(rng):
    x, state = np.zeros((2, 5, 3)), rng.standard_normal((1, 2, 4))
    one = net(dtype="float64")
    expected = np.array(one.forward(x, states={0: state}))
    np.testing.assert_array_equal(one.forward(x, states=state), expected)
    one.backward(np.ones_like(expected), state_gradients=state)
    lstm = net(bp.LSTM(3, 4), dtype="float64")
    expected = np.array(lstm.forward(x, states={0: (state, state)}))
    np.testing.assert_array_equal(lstm.forward(x, states=(state, state)), expected)
    two = bp.Sequential([bp.GRU(3, 4), bp.Tanh(), bp.GRU(4, 4)], (5, 3), **IN_FLOAT64)
    with pytest.raises(bp.ShapeError, match=r"one ndarray for 2 recurrent .* index, \{0: ..., 2: ...\}"):
        two.forward(x, states=state)
    plain = bp.Sequential([bp.Linear(3, 2)], (5, 3), **IN_FLOAT64)
    with pytest.raises(bp.ShapeError, match="no layer of the network is recurrent"):
        plain.forward(x, states=state)


def test_the_forward_method_is_shown_and_changes_no_fingerprint():
    layers = [bp.GRU(3, 4, forward_method=method) for method in ("auto", "newton")]
    assert "forward_method='newton'" in repr(layers[1])
    assert type(layers[1])(**layers[1].config()).forward_method == "newton"
    assert net(layers[0]).fingerprint == net(layers[1]).fingerprint


@pytest.mark.parametrize("method", ["newton", "quasi-newton"])
def test_too_little_memory_for_newton_is_said_before_anything_is_taken(method, monkeypatch):
    """Enough for the layer, not for the iterations beside it."""
    network, x = net(bp.GRU(3, 4, 2, forward_method=method), steps=50), np.zeros((2, 50, 3), "float32")
    monkeypatch.setattr(network.device, "free_memory", lambda: 1000)
    with pytest.raises(bp.DeviceError, match="a pass takes") as refused:
        network.forward(x)
    enough = int(str(refused.value).split("takes ")[1].split()[0])
    monkeypatch.setattr(network.device, "free_memory", lambda: enough + 1000)
    allocated = network.device.allocated
    with pytest.raises(bp.DeviceError, match=r"Newton's .* takes \d+ bytes, \d+ are free"):
        network.forward(x)
    assert network.device.allocated == allocated
