"""Recurrent layers inside of residual blocks, against PyTorch, and the same layers outside of blocks."""

import numpy as np
import pytest
import torch

import bppsa_cupy as bp

LENGTHS = np.array([7, 3, 1, 5])


def network(device="host", inner=None):
    """A block around a recurrent layer, and one around that; a recurrent layer in a shortcut."""
    nested = bp.Residual([bp.Linear(3, 3), bp.Residual([inner or bp.LSTM(3, 3)]), bp.Tanh()], [bp.GRU(3, 3)])
    layers = [bp.Linear(2, 3), nested, bp.Linear(3, 2)]
    return bp.Sequential(layers, (None, 2), seed=4, dtype="float64", device=device)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.lstm = torch.nn.Linear(3, 3), torch.nn.LSTM(3, 3, batch_first=True)
        self.gru = torch.nn.GRU(3, 3, batch_first=True)

    def forward(self, x, lengths):
        def walked(layer, x):
            packed = torch.nn.utils.rnn.pack_padded_sequence(
                x, torch.tensor(lengths), batch_first=True, enforce_sorted=False
            )
            out, _ = layer(packed)
            return torch.nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])[0]

        y = self.linear(x)
        return torch.tanh(y + walked(self.lstm, y)) + walked(self.gru, x)


def test_values_and_gradients_are_pytorchs(device):
    net = network(device)
    theirs = torch.nn.ModuleList([torch.nn.Linear(2, 3), Block(), torch.nn.Linear(3, 2)]).double()
    names = dict(zip(theirs.state_dict(), net.state_dict(), strict=False))
    assert len(names) == len(net.parameters)
    theirs.load_state_dict({name: torch.tensor(net.state_dict()[own]) for name, own in names.items()})
    x = np.random.default_rng(0).standard_normal((4, 7, 2))
    for lengths in (LENGTHS, np.full(4, 7), LENGTHS[::-1].copy()):
        y = net.forward(x, lengths=lengths)
        given = torch.tensor(x, requires_grad=True)
        expected = theirs[2](theirs[1](theirs[0](given), lengths))
        np.testing.assert_allclose(device.to_host(y), expected.detach().numpy(), rtol=1e-11, atol=1e-12)
        gradient = np.random.default_rng(1).standard_normal(y.shape)
        by_input = net.backward(gradient, "bp", input_gradient=True)
        theirs.zero_grad()
        expected.backward(torch.tensor(gradient))
        np.testing.assert_allclose(device.to_host(by_input), given.grad.numpy(), rtol=1e-9, atol=1e-11)
        for name, parameter in theirs.named_parameters():
            ours = device.to_host(net.gradients[names[name]])
            np.testing.assert_allclose(ours, parameter.grad.numpy(), rtol=1e-9, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("method", ["linear", "blelloch", "auto"])
def test_every_method_gives_the_same_gradients_and_says_how(method):
    net = network(inner=bp.RNN(3, 3))
    x = np.random.default_rng(0).standard_normal((3, 5, 2))
    gradient = np.random.default_rng(1).standard_normal((3, 5, 2))
    net.forward(x)
    net.backward(gradient, "bp")
    expected = net.gradients.to_host()
    net.use(net.plan(batch_size=3))
    net.backward(gradient, method)
    for name, array in expected.items():
        np.testing.assert_allclose(net.gradients[name], array, rtol=1e-10, atol=1e-12, err_msg=name)
    ways = net.last_backward.backward_ways
    assert [way.split(":")[0] for way in ways] == ["1.body.1.body.0 RNN l0", "1.shortcut.0 GRU l0"]
    assert len(net.last_pass.forward_ways) == 2


def test_a_pipeline_cuts_around_them():
    """A cut inside of the block hands lengths on, too."""
    from bppsa_cupy.data.dataset import Dataset, Split
    from bppsa_cupy.training.loop import train
    from bppsa_cupy.training.settings import Settings

    rng = np.random.default_rng(0)
    split = Split(rng.standard_normal((8, 7, 2)), rng.integers(0, 2, (8, 7)), None, rng.integers(1, 8, 8))
    dataset = Dataset("drawn", (None, 2), 2, split, None, None)
    states = []
    for ppv in (None, (2,), (1, 2, 3)):
        net = network()
        trained = net if ppv is None else bp.Pipeline(net, ppv, "none")
        train(trained, dataset, bp.SGD(net.parameters, lr=0.1), Settings(batch_size=3, epochs=2))
        states.append(net.parameters.flat.copy())
    for other in states[1:]:
        np.testing.assert_array_equal(other, states[0])


def test_records_name_their_place():
    net = network(inner=bp.RNN(3, 3))
    net.forward(np.random.default_rng(0).standard_normal((2, 3, 2)))
    records = [record for record in net.transposed_jacobians() if record.direction]
    assert {(record.layer, record.path, record.name) for record in records} == {
        (1, "body.1.body.0", "RNN l0"),
        (1, "shortcut.0", "GRU l0"),
    }
    assert sorted(record.step for record in records) == [0, 0, 1, 1, 2, 2]
