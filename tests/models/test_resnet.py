"""ResNets for CIFAR against PyTorch's modules, whose names are others: scores, and a step of training."""

import re

import numpy as np
import pytest
import torch
from marks import some
from torch import nn
from torch_resnet import ResNet

import bppsa_cupy as bp
from bppsa_cupy.models import build_model
from bppsa_cupy.models.images import resnet
from bppsa_cupy.plan import SCHEDULES


@pytest.mark.parametrize("method", some("bp", long=("blelloch", "linear", "hybrid", "auto")))
def test_a_step_of_resnet20_is_pytorchs(method, rng):
    torch.manual_seed(2)
    reference = ResNet(20).double()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9)
    net = build_model("resnet20", dtype="float64", device="host")
    net.load_state_dict(reference.state_dict(), by_order=True)
    ours = bp.SGD(net.parameters, lr=0.1, momentum=0.9)
    if method != "bp":
        net.use(net.plan(batch_size=2))
    x, labels = rng.standard_normal((2, 3, 32, 32)), rng.integers(0, 10, 2)
    nn.functional.cross_entropy(reference(torch.tensor(x)), torch.tensor(labels)).backward()
    optimizer.step()
    _, gradient = bp.cross_entropy(net.forward(x), labels)
    before = net.device.launched["csr_spmv"]
    net.backward(gradient, method=method)
    if method in SCHEDULES:
        assert len(net.last_backward.schedules) == 11  # outside of the 9 blocks, which VJPs cross
        text = " ".join(net.last_backward.schedules)
        by_jacobians, by_vjps = (sum(map(int, re.findall(rf"(\d+) {kind}", text))) for kind in ("mv", "VJP"))
        assert net.device.launched["csr_spmv"] - before == by_jacobians
        assert by_jacobians + by_vjps == 12 and (by_vjps > 0) == (method == "hybrid")
    ours.step(net.gradients)
    theirs = reference.state_dict()
    for (name, array), (their_name, expected) in zip(net.state_dict().items(), theirs.items(), strict=True):
        np.testing.assert_allclose(array, expected.numpy(), rtol=1e-10, atol=1e-10, err_msg=their_name + name)


def test_scores_in_evaluation_are_pytorchs(rng):
    reference, net = ResNet(8).double(), resnet(8, dtype="float64", device="host")
    x = torch.tensor(rng.standard_normal((4, 3, 32, 32)))
    reference(x)
    net.load_state_dict(reference.state_dict(), by_order=True)
    expected = reference.eval()(x).detach().numpy()
    np.testing.assert_allclose(net.eval().forward(x.numpy()), expected, rtol=1e-10, atol=1e-10)
