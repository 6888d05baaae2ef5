"""VGG-11 pruned to 97 %: a whole backward pass by scan has the gradients of PyTorch with the same masks."""

import numpy as np
import pytest
import torch

import bppsa_cupy as bp
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


def test_gradients_are_pytorchs(network, rng):
    inputs, labels = rng.standard_normal((BATCH, *network.input_shape)), np.array([3, 8])
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
