"""VGG-11 pruned to 97 %: a whole backward pass by scan has the gradients of PyTorch with the same masks."""

import os

import numpy as np
import pytest
import torch

import bppsa_cupy as bp
from bppsa_cupy.data import batches, load
from bppsa_cupy.models import build_model
from bppsa_cupy.tools.torch_modules import torch_network

pytestmark = pytest.mark.long

BATCH = 2


@pytest.fixture(scope="module")
def network():
    """Pruned, with a plan of one up-sweep level."""
    net = build_model("vgg11", dtype="float64", device="host")
    bp.prune(net, 0.97)
    net.use(net.plan(levels=1, schedules=["linear", "hybrid"], batch_size=BATCH))
    return net


@pytest.fixture(params=["random", "cifar10"])
def batch(request, network):
    """Inputs and labels."""
    if request.param == "random":
        rng = np.random.default_rng(0)
        return rng.standard_normal((BATCH, *network.input_shape)), np.array([3, 8])
    path = os.environ.get("BPPSA_CIFAR10")
    if path is None:
        pytest.skip("BPPSA_CIFAR10 names no folder of CIFAR-10's binary layout")
    found = next(batches(load(path).train, BATCH, seed=0, dtype=network.dtype))
    return found.inputs, found.labels


def test_gradients_are_pytorchs(network, batch):
    inputs, labels = batch
    model = torch_network(network)
    torch.nn.functional.cross_entropy(model(torch.tensor(inputs)), torch.tensor(labels)).backward()
    _, gradient = bp.cross_entropy(network.forward(inputs), labels)
    for method in ("bp", "linear", "hybrid"):
        network.backward(gradient, method=method)
        for name, parameter in model.named_parameters():
            ours = network.gradients[name]
            mask = network.masks.get(name, np.ones(ours.shape, bool))
            expected = parameter.grad.numpy() * mask
            assert np.linalg.norm(ours - expected) <= 1e-10 * np.linalg.norm(expected), (method, name)
            assert not ours[~mask].any()
    assert {name: round(1 - mask.mean(), 3) for name, mask in network.masks.items()} == dict.fromkeys(
        (f"{index}.weight" for index in (0, 3, 6, 8, 11, 13, 16, 18, 22)), 0.97
    )
