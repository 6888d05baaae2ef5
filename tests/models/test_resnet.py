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
from bppsa_cupy.models.resnet import resnet
from bppsa_cupy.plan import SCHEDULES
from bppsa_cupy.tools.benchmarks.rivals import torch_network


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
    net.backward(gradient, method=method)
    if method in SCHEDULES:
        assert len(net.last_backward.schedules) == 31  # 20 in 9 blocks, 11 outside
        told = " ".join(net.last_backward.schedules)
        by_jacobians, by_vjps = (sum(map(int, re.findall(rf"(\d+) {kind}", told))) for kind in ("mv", "VJP"))
        assert net.last_backward.launches["csr_spmv"] == by_jacobians
        assert by_jacobians + by_vjps == 41 and (by_vjps > 0) == (method == "hybrid")
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


def test_the_rival_of_benchmarks_and_figures_is_the_same_network(rng):
    reference, net = ResNet(14).double(), resnet(14, dtype="float64", device="host")
    net.load_state_dict(reference.state_dict(), by_order=True)
    rival = torch_network(net)
    x = torch.tensor(rng.standard_normal((4, 3, 32, 32)))
    torch.testing.assert_close(rival(x), reference(x), rtol=1e-12, atol=1e-12)
    assert list(rival.state_dict()) == list(net.state_dict())
    for ours, theirs in zip(rival.state_dict().values(), reference.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_initial_values_are_hes():
    net = resnet(14, device="host", seed=5)
    weight = net.parameters["3.body.0.weight"]
    assert abs(weight.std() / np.sqrt(2 / (16 * 9)) - 1) < 0.05 and abs(weight.mean()) < 0.01
    assert np.all(net.parameters["3.body.1.weight"] == 1)
    again = resnet(14, device="host", seed=5).parameters["3.body.0.weight"]
    assert np.array_equal(again, weight)
    assert not np.array_equal(resnet(14, device="host", seed=6).parameters["3.body.0.weight"], weight)


def test_other_sizes_and_depths():
    assert resnet(8, (1, 30, 29), 7, device="host").output_shape == (7,)
    with pytest.raises(bp.ShapeError, match=r"depth=21: it takes 6 n \+ 2"):
        resnet(21)
    with pytest.raises(bp.ShapeError, match=r"takes \(C, H, W\)"):
        resnet(8, (3, 32))


def test_a_state_dict_of_another_network_is_refused_by_order():
    net = resnet(8, device="host")
    state = ResNet(8).state_dict()
    before = net.state_dict()
    other = {**state, "blocks.1.conv1.weight": torch.zeros(32, 16, 1, 1)}
    with pytest.raises(
        bp.CheckpointError, match=r"'blocks.1.conv1.weight' has shape .* and '5.body.0.weight'"
    ):
        net.load_state_dict(other, by_order=True)
    with pytest.raises(
        bp.CheckpointError, match=r"holds 42 arrays and the network 44.*'\d+.weight'.*network alone"
    ):
        net.load_state_dict(dict(list(state.items())[:-2]), by_order=True)
    with pytest.raises(bp.CheckpointError, match=r"holds 45 arrays.*'more'.*in the state dict alone"):
        net.load_state_dict({**state, "more": torch.zeros(1)}, by_order=True)
    assert all(np.array_equal(before[name], array) for name, array in net.state_dict().items())
