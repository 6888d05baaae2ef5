"""Dropout between the inner layers of a recurrent module: PyTorch's law, and for equal seeds its zeros."""

import copy

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

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
