"""Dropout between the inner layers of a recurrent module: PyTorch's law, and for equal seeds its zeros."""

import copy

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import bppsa_cupy as bp
import bppsa_cupy.torch as ours

CASES = [
    ("GRU", {"num_layers": 2, "dropout": 0.5}),
    ("LSTM", {"num_layers": 3, "dropout": 0.3, "bidirectional": True}),
    ("RNN", {"num_layers": 2, "dropout": 0.2, "batch_first": True}),
]


def pair(name, **options):
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(3, 4, **options).double()
    return theirs, ours.convert(copy.deepcopy(theirs))


def results(module, x):
    """Output, last states and gradients, of a seed's zeros."""
    x = x.detach().requires_grad_()
    torch.manual_seed(7)
    y, after = module(x)
    module.zero_grad()
    states = after if isinstance(after, tuple) else (after,)
    (y.square().sum() + sum(state.sin().sum() for state in states)).backward()
    return [y, *states, x.grad, *(parameter.grad for parameter in module.parameters())]


@pytest.mark.parametrize("name, options", CASES, ids=[name for name, _ in CASES])
@pytest.mark.parametrize("training", [True, False])
def test_equal_seeds_drop_what_pytorch_drops(name, options, training):
    theirs, module = (m.train(training) for m in pair(name, **options))
    x = torch.randn(6, 5, 3, dtype=torch.float64)
    for got, expected in zip(results(module, x), results(theirs, x), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_packs_drop_none_and_all(probability):
    theirs, module = pair("GRU", num_layers=2, dropout=probability)
    pack = pack_sequence([torch.randn(n, 3, dtype=torch.float64) for n in (2, 6, 4)], enforce_sorted=False)
    (y, h), (expected, state) = module(pack), theirs(pack)
    torch.testing.assert_close((y.data, h), (expected.data, state), rtol=1e-10, atol=1e-12)


def test_packs_drop_a_share_of_p_and_scale_the_rest():
    """By the gradient: of a sum over the second layer's inputs it is 0 or 1 / (1 - p) times the first's."""
    _, module = pair("GRU", num_layers=2, dropout=0.25)
    pack = pack_sequence([torch.randn(40, 3, dtype=torch.float64)] * 50)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("_l1"):
                parameter.zero_()
        module.weight_ih_l1[8:] = torch.eye(
            4
        )  # n = tanh(x), z = 1/2: h' = (h + tanh(x)) / 2 of the dropped x
        first = ours.GRU(3, 4).double()
        first.load_state_dict({k: p for k, p in module.state_dict().items() if k.endswith("_l0")})
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(module(pack)[0])
        x, _ = torch.nn.utils.rnn.pad_packed_sequence(first(pack)[0])
    before = torch.cat([torch.zeros_like(y[:1]), y[:-1]])
    ratios = torch.atanh(2 * y - before) / x
    dropped = ratios.abs() < 1e-6
    torch.testing.assert_close(ratios[~dropped], torch.full_like(ratios[~dropped], 4 / 3), rtol=1e-6, atol=0)
    assert abs(dropped.double().mean().item() - 0.25) < 0.025  # 8,000 draws: five standard deviations


def test_a_cell_layer_drops_too():
    cell = bp.Cell.built_in("gru")
    torch.manual_seed(0)
    module, other = (ours.CellLayer(cell, 3, 4, 2, dropout=1.0, dtype=torch.float64) for _ in range(2))
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            other.get_parameter(name).copy_(parameter * (1.0 if name.endswith("_l1") else 2.0))
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(module(x)[0], other(x)[0])  # the second layer sees zeros alone
    assert not torch.allclose(module.eval()(x)[0], other.eval()(x)[0])
