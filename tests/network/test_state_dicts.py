"""State dicts of bare modules load by their names."""

import numpy as np
import pytest
import torch

import bppsa_cupy as bp


def lstm():
    return bp.Sequential([bp.LSTM(3, 4, 2)], (5, 3), device="host", seed=1)


def classifier():
    layers = [bp.GRU(3, 4, outputs="last"), bp.Linear(4, 2)]
    return bp.Sequential(layers, (5, 3), device="host", seed=2)


def assert_loaded(net, arrays):
    for ours, theirs in zip(net.state_dict().values(), arrays.values(), strict=True):
        assert np.array_equal(ours, theirs)


def test_the_state_of_a_bare_module():
    state = torch.nn.LSTM(3, 4, 2).state_dict()
    net = lstm()
    net.load_state_dict(state, by_order=True)
    assert_loaded(net, state)


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: f"x{name}",
        lambda name: name.replace("1.", "out."),
        lambda name: name.partition(".")[2],
        lambda name: f"a.{name}" if name.startswith("0.weight_ih") else f"b.{name}",
    ],
)
def test_other_names_are_refused_and_nothing_is_set(rename):
    net = classifier()
    before = net.state_dict()
    state = {rename(name): array * 0 for name, array in before.items()}
    with pytest.raises(bp.CheckpointError, match=r"missing: .*by_order=True"):
        net.load_state_dict(state)
    assert_loaded(net, before)


def test_the_state_of_a_parametrized_module_is_refused():
    module = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 2))
    net = bp.Sequential([bp.Linear(3, 2)], (3,), device="host")
    with pytest.raises(bp.CheckpointError, match=r"parametrizations.*remove_parametrizations"):
        net.load_state_dict(module.state_dict(), by_order=True)
