"""What recurrent layers and networks over sequences refuse, and what the messages name."""

import numpy as np
import pytest

import bppsa_cupy as bp

X = np.zeros((2, 5, 3), "float32")


def net(layer=None, steps=5):
    return bp.Sequential([layer or bp.GRU(3, 4), bp.Linear(4, 2)], (steps, 3), device="host")


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
    state = np.zeros((1, 2, 4), "float32")
    lstm = net(bp.LSTM(3, 4))
    with pytest.raises(bp.ShapeError, match="got 1 arrays as the initial state: it takes a pair"):
        lstm.forward(X, states={0: state})
    lstm.forward(X, states={0: (state, state)})
    with pytest.raises(bp.ShapeError, match="as the gradient by the final state"):
        lstm.backward(np.zeros((2, 5, 2), "float32"), state_gradients={0: state})


def test_a_network_without_recurrent_layers_refuses_lengths():
    plain = bp.Sequential([bp.Linear(3, 2)], (5, 3), device="host")
    with pytest.raises(bp.ShapeError, match="no layer of the network is recurrent"):
        plain.forward(X, lengths=[5, 5])


def test_a_state_on_its_own_is_that_of_the_only_recurrent_layer(rng):
    state = rng.standard_normal((1, 2, 4)).astype("float32")
    one = net()
    expected = np.array(one.forward(X, states={0: state}))
    np.testing.assert_array_equal(one.forward(X, states=state), expected)
    one.backward(np.ones_like(expected), state_gradients=state)
    lstm = net(bp.LSTM(3, 4))
    expected = np.array(lstm.forward(X, states={0: (state, state)}))
    np.testing.assert_array_equal(lstm.forward(X, states=(state, state)), expected)
    two = bp.Sequential([bp.GRU(3, 4), bp.Tanh(), bp.GRU(4, 4)], (5, 3), device="host")
    with pytest.raises(bp.ShapeError, match=r"one ndarray for 2 recurrent .* index, \{0: ..., 2: ...\}"):
        two.forward(X, states=state)
    plain = bp.Sequential([bp.Linear(3, 2)], (5, 3), device="host")
    with pytest.raises(bp.ShapeError, match="no layer of the network is recurrent"):
        plain.forward(X, states=state)


def test_the_forward_method_is_shown_and_changes_no_fingerprint():
    layers = [bp.GRU(3, 4, forward_method=method) for method in ("auto", "newton")]
    assert "forward_method='newton'" in repr(layers[1])
    assert type(layers[1])(**layers[1].config()).forward_method == "newton"
    assert net(layers[0]).fingerprint == net(layers[1]).fingerprint


def test_an_open_number_of_steps_is_at_least_one():
    with pytest.raises(bp.ShapeError, match=r"it takes \(B, T, 3\) with B and T of at least 1"):
        net(steps=None).forward(X[:, :0])


def test_too_little_memory_is_said_before_anything_is_taken(monkeypatch):
    network = net()
    monkeypatch.setattr(network.device, "free_memory", lambda: 1000)
    allocated = network.device.allocated
    with pytest.raises(bp.DeviceError, match=r"takes \d+ more bytes, 1000 are free"):
        network.forward(X)
    assert network.device.allocated == allocated


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
    with pytest.raises(bp.DeviceError, match=r"Newton's .* takes \d+ bytes, \d+ are free .* the fewest, \d+"):
        network.forward(x)
    assert network.device.allocated == allocated
