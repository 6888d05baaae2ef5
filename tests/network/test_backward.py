"""LeNet-5's gradients by every method, against ordinary back-propagation and PyTorch."""

import numpy as np
import pytest
import torch

import bppsa_cupy as bp
from bppsa_cupy.models import lenet5

METHODS = ("bp", "linear", "blelloch", "hybrid")


def relative(ours, theirs):
    return np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)


def torch_lenet5():
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


@pytest.fixture(scope="module")
def network():
    net = lenet5(seed=3, dtype="float64", device="host")
    net.use(net.plan(levels=2, batch_size=6))
    return net


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(8)
    return rng.standard_normal((6, 3, 32, 32)), rng.integers(0, 10, 6)


def gradients(net, images, labels, method):
    _, gradient = bp.cross_entropy(net.forward(images), labels)
    by_input = net.backward(gradient, method=method, input_gradient=True)
    return {"input": by_input.copy(), **net.gradients.to_host()}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_pytorchs_gradients(network, batch, method):
    images, labels = batch
    ours = gradients(network, images, labels, method)
    reference = torch_lenet5().double()
    reference.load_state_dict({name: torch.tensor(array) for name, array in network.state_dict().items()})
    inputs = torch.tensor(images, requires_grad=True)
    torch.nn.functional.cross_entropy(reference(inputs), torch.tensor(labels)).backward()
    assert relative(ours["input"], inputs.grad.numpy()) < 1e-10
    for name, parameter in reference.named_parameters():
        assert relative(ours[name], parameter.grad.numpy()) < 1e-10


@pytest.mark.parametrize("size", [6, 1, 5])
@pytest.mark.parametrize("method", METHODS[1:])
def test_scans_equal_back_propagation(network, batch, method, size):
    images, labels = batch[0][:size], batch[1][:size]
    expected = gradients(network, images, labels, "bp")
    got = gradients(network, images, labels, method)
    assert max(relative(got[name], expected[name]) for name in expected) <= 1e-12


@pytest.mark.parametrize("method", METHODS)
def test_every_device(device, method):
    rng = np.random.default_rng(1)
    layers = [bp.Conv2d(2, 3, 3, padding=1), bp.ReLU(), bp.MaxPool2d(2), bp.Tanh(), bp.AvgPool2d(2),
              bp.Flatten(), bp.Linear(12, 5), bp.Sigmoid(), bp.Linear(5, 3)]  # fmt: skip
    net = bp.Sequential(layers, (2, 9, 9), seed=1, dtype="float64", device=device)
    net.use(net.plan(levels=1, batch_size=4))
    images, labels = rng.standard_normal((3, 2, 9, 9)), rng.integers(0, 3, 3)
    twin = bp.Sequential(layers, (2, 9, 9), seed=1, dtype="float64", device="host")
    _, gradient = bp.cross_entropy(twin.forward(images), labels)
    twin.backward(gradient, method="bp")
    net.forward(device.asarray(images))
    net.backward(device.asarray(gradient), method=method)
    for name, array in net.gradients.to_host().items():
        assert relative(array, twin.gradients[name]) < 1e-12


@pytest.mark.parametrize("method", METHODS[1:])
def test_a_run_of_one_element_needs_no_plan(method):
    """Between recurrent layers: each run has one layer with a Jacobian, so nothing is scanned over layers."""
    layers = [bp.Linear(2, 3), bp.GRU(3, 4), bp.Linear(4, 5), bp.RNN(5, 3), bp.Flatten(), bp.Linear(18, 2)]
    net = bp.Sequential(layers, (6, 2), dtype="float64", device="host")
    x, labels = np.random.default_rng(1).standard_normal((3, 6, 2)), [0, 1, 1]
    assert not net.architecture.needs_plan
    expected = gradients(net, x, labels, "bp")
    for name, array in gradients(net, x, labels, method).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-10, atol=1e-14)
    assert net.last_backward.method == method and net.last_backward.schedules == ()
    net.use(net.plan(batch_size=3))
    for name, array in gradients(net, x, labels, method).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-10, atol=1e-14)
    assert len(net.last_backward.schedules) == 3
