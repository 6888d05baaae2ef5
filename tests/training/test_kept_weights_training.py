"""Training of pruned networks, of whose weights, gradients and optimizer's state the kept ones alone are
walked."""

import copy

import numpy as np
import pytest
import torch

import bppsa_cupy as bp

OPTIMIZERS = {
    "SGD": {"lr": 0.05},
    "SGD with momentum": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.02, "nesterov": True},
    "Adam": {"lr": 0.01, "weight_decay": 0.02},
    "AdamW": {"lr": 0.01, "weight_decay": 0.2},
}


def pair(seed=0):
    """A pruned network, and PyTorch's dense one of the same weights and masks."""
    layers = [
        bp.Conv2d(3, 8, 3, padding=1), bp.ReLU(), bp.Conv2d(8, 8, 3, stride=2), bp.ReLU(), bp.Flatten(),
        bp.Linear(72, 12), bp.ReLU(), bp.Linear(12, 4),
    ]  # fmt: skip
    net = bp.Sequential(layers, (3, 8, 8), seed=seed, dtype="float64", device="host")
    masks = bp.prune(net, 0.92)
    masks["7.weight"] = np.random.default_rng(0).random((4, 12)) < 0.8  # by all weights
    net.set_masks(masks)
    assert (
        net.by_kept_weights == ("0", "2", "5") and net.gradients.flat.size == net.parameters.flat.size < 500
    )
    theirs = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3, stride=2),
        torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(72, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4),
    ).double()  # fmt: skip
    theirs.load_state_dict({name: torch.tensor(array) for name, array in net.state_dict().items()})
    return net, theirs, {name: torch.tensor(mask) for name, mask in net.masks.items()}


def batch(step):
    rng = np.random.default_rng(step)
    return rng.standard_normal((5, 3, 8, 8)), rng.integers(0, 4, 5)


def take_step(net, optimizer, x, labels, clip=None):
    _, gradient = bp.cross_entropy(net.forward(x), labels)
    net.backward(gradient, method="bp")
    if clip is not None:
        bp.clip_grad_norm(net.gradients, clip)
    optimizer.step(net.gradients)


@pytest.mark.parametrize("case", OPTIMIZERS)
def test_fifty_steps_are_those_of_the_dense_network_with_masks(case):
    net, theirs, masks = pair()
    kind, options = case.split()[0], OPTIMIZERS[case]
    ours = getattr(bp, kind)(net.parameters, **options)
    weights = dict(theirs.named_parameters())
    rival = getattr(torch.optim, kind)(weights.values(), **options)
    for step in range(50):
        x, labels = batch(step)
        take_step(net, ours, x, labels, clip=0.8)
        rival.zero_grad()
        torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(labels)).backward()
        for name, mask in masks.items():
            weights[name].grad *= mask
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.8)
        for name, weight in weights.items():
            np.testing.assert_allclose(net.gradients[name], weight.grad, rtol=1e-12, atol=1e-12)
        rival.step()
        for name, mask in masks.items():
            weights[name].data *= mask
        if step == 25:  # a state of kept weights alone goes through one of all, as files have it
            state = copy.deepcopy(ours.state_dict())
            assert all(array.size > 4 * net.parameters.flat.size for array in state["arrays"].values())
            ours = getattr(bp, kind)(net.parameters, **options)
            ours.load_state_dict(state)
        if step == 30:  # masks that keep other weights: what comes back begins anew
            old = net.masks["0.weight"]
            changed = {**net.masks, "0.weight": np.roll(old, 1)}
            moved, gone = changed["0.weight"] & ~old, old & ~changed["0.weight"]
            net.set_masks(changed)
            masks = {name: torch.tensor(mask) for name, mask in changed.items()}
            weights["0.weight"].data[torch.tensor(gone)] = 0
            for key, value in rival.state[weights["0.weight"]].items():
                if value is not None and key != "step":
                    value[torch.tensor(gone)] = 0
            assert moved.any() and not np.array(net.parameters["0.weight"])[moved].any()
    for name, weight in weights.items():
        np.testing.assert_allclose(net.parameters[name], weight.detach(), rtol=1e-8, atol=1e-10)


def add_one(weight):
    weight += 1


@pytest.mark.parametrize("write", [lambda w: w.__setitem__(..., 0), lambda w: np.copyto(w, 0), add_one])
def test_the_dense_array_of_a_pruned_weight_is_read_only(write):
    net, _, _ = pair()
    take_step(net, bp.SGD(net.parameters), *batch(0))
    for arrays in (net.parameters, net.gradients):
        dense = arrays["0.weight"]
        assert dense.shape == (8, 3, 3, 3) and not dense[~net.masks["0.weight"]].any()
        assert dense.copy().flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            write(dense)


@pytest.mark.parametrize("name", ["0.weight", "7.weight", "7.bias"])
def test_any_parameter_is_set_by_assignment(name):
    net, theirs, _ = pair()
    net.forward(batch(0)[0])
    dense = np.random.default_rng(1).standard_normal(net.parameters[name].shape)
    net.parameters[name] = dense
    with pytest.raises(bp.PassError, match=r"net\.forward"):
        net.backward(np.ones((5, 4)))
    masked = dense * net.masks.get(name, 1)
    np.testing.assert_array_equal(net.parameters[name], masked)
    theirs.load_state_dict({**theirs.state_dict(), name: torch.tensor(masked)})
    expected = theirs(torch.tensor(batch(0)[0])).detach()
    np.testing.assert_allclose(net.forward(batch(0)[0]), expected, rtol=1e-12, atol=1e-12)
    with pytest.raises(bp.ShapeError):
        net.parameters[name] = dense[:1, ..., None]


def test_updates_by_parts_of_a_pruned_network():
    """Steps of two parts are those of the whole."""
    nets = [pair()[0] for _ in range(2)]
    full, parted = (bp.SGD(net.parameters, lr=0.1, momentum=0.9) for net in nets)
    names = list(nets[1].parameters)
    for step in range(4):
        if step == 2:
            for net in nets:
                net.set_masks({**net.masks, "0.weight": np.roll(net.masks["0.weight"], 1)})
            parted.settle()
        cut = nets[1].parameters.layout.part_of(names[:3]).stop
        x, labels = batch(step)
        for net in nets:
            net.backward(bp.cross_entropy(net.forward(x), labels)[1])
        full.step(nets[0].gradients)
        for part in (slice(0, cut), slice(cut, nets[1].parameters.flat.size)):
            parted.step(nets[1].gradients, part)
    np.testing.assert_equal(nets[1].state_dict(), nets[0].state_dict())
