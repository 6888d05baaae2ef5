"""Optimizers against PyTorch over several steps, and the flag that blocks a bad gradient."""

import numpy as np
import pytest
import torch
from optimizer_cases import SHAPES, filled

import bppsa_cupy as bp
from bppsa_cupy.devices import get_device
from bppsa_cupy.network.parameters import ParameterSet

CASES = [
    (bp.SGD, torch.optim.SGD, {"lr": 0.1}),
    (bp.SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (bp.SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01}),
    (bp.SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.02}),
    (bp.Adam, torch.optim.Adam, {"lr": 0.01}),
    (bp.Adam, torch.optim.Adam, {"lr": 0.01, "betas": (0.8, 0.99), "eps": 1e-6, "weight_decay": 0.1}),
    (bp.AdamW, torch.optim.AdamW, {"lr": 0.01}),
    (bp.AdamW, torch.optim.AdamW, {"lr": 0.1, "betas": (0.8, 0.99), "weight_decay": 0.5}),
]


@pytest.mark.parametrize("ours, theirs, options", CASES)
def test_steps_equal_pytorch(device, dtype, rng, ours, theirs, options):
    compare(device, dtype, rng, ours, theirs, options, SHAPES)


@pytest.mark.parametrize("ours, theirs, options", CASES)
def test_large_steps_are_cut_into_parts(rng, ours, theirs, options):
    compare(get_device("host"), "float64", rng, ours, theirs, options, {"weight": (263, 601)})


def compare(device, dtype, rng, ours, theirs, options, shapes):
    """Five steps, by us and by PyTorch."""
    parameters, gradients = filled(device, dtype, rng, shapes), filled(device, dtype, rng, shapes)
    tensors = {name: torch.tensor(array.astype(np.float64)) for name, array in parameters.to_host().items()}
    optimizer, reference = ours(parameters, **options), theirs(list(tensors.values()), **options)
    for _ in range(5):
        gradients.assign({name: rng.standard_normal(shape) for name, shape in shapes.items()})
        for name, tensor in tensors.items():
            tensor.grad = torch.tensor(gradients.to_host()[name].astype(np.float64))
        optimizer.step(gradients)
        reference.step()
    for name, array in parameters.to_host().items():
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(array, tensors[name], rtol=200 * eps, atol=10 * eps)


@pytest.mark.parametrize("theirs, ours", [(torch.optim.Adam, bp.Adam), (torch.optim.AdamW, bp.AdamW)])
@pytest.mark.parametrize("beta", [0.0, 0.3, 0.5, 0.6, 0.9])
@pytest.mark.parametrize("dtype", [np.dtype("float32"), np.dtype("float64")], ids=str)
def test_gradients_that_shrink_by_nine_orders(device, dtype, ours, theirs, beta):
    start, options = np.array([0.5, -2.0, 1e-3]), {"lr": 0.1, "betas": (beta, 0.0)}
    parameters, gradients = (ParameterSet(device, dtype, {"w": (3,)}) for _ in range(2))
    parameters.assign({"w": start})
    tensor = torch.tensor(start.astype(dtype), requires_grad=True)
    optimizer, reference = ours(parameters, **options), theirs([tensor], **options)
    for scale in (1e4, 1e-5, 1e-5):
        gradient = scale * np.array([1.0, -3.0, 0.25])
        gradients.assign({"w": gradient})
        tensor.grad = torch.tensor(gradient.astype(dtype))
        optimizer.step(gradients)
        reference.step()
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(parameters.to_host()["w"], tensor.detach(), rtol=8 * eps, atol=eps)


@pytest.mark.parametrize("ours, _, options", CASES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(device, rng, ours, _, options, bad):
    parameters, gradients = filled(device, "float64", rng), filled(device, "float64", rng)
    optimizer = ours(parameters, **options)
    optimizer.step(gradients)
    before, state = parameters.to_host(), optimizer.state_dict()["arrays"]
    assert not optimizer.blocked
    gradients["0.bias"][1] = bad
    optimizer.step(gradients)
    assert optimizer.blocked
    for name, array in parameters.to_host().items():
        assert np.array_equal(array, before[name])
    for name, array in optimizer.state_dict()["arrays"].items():
        assert np.array_equal(array, state[name])


@pytest.mark.parametrize("ours, theirs, options", CASES)
def test_a_blocked_step_does_not_count(rng, ours, theirs, options):
    device = bp.Sequential([bp.ReLU()], (1,), device="host").device
    parameters, gradients = filled(device, "float64", rng), filled(device, "float64", rng)
    tensors = {name: torch.tensor(array) for name, array in parameters.to_host().items()}
    optimizer, reference = ours(parameters, **options), theirs(list(tensors.values()), **options)
    good = gradients.to_host()
    for bad in (True, False, True, False):
        gradients.assign(good)
        if bad:
            gradients["0.weight"][0, 0] = np.nan
        optimizer.step(gradients)
        assert optimizer.blocked == bad
        if not bad:
            for name, tensor in tensors.items():
                tensor.grad = torch.tensor(good[name])
            reference.step()
    assert optimizer.steps == 2
    for name in SHAPES:
        np.testing.assert_allclose(parameters[name], tensors[name], rtol=1e-12)


def test_momentum_that_is_set_between_steps_is_pytorchs(rng):
    device = get_device("host")
    parameters, gradients = filled(device, "float64", rng), filled(device, "float64", rng)
    tensors = {name: torch.tensor(array) for name, array in parameters.to_host().items()}
    optimizer = bp.SGD(parameters, lr=0.1)
    reference = torch.optim.SGD(tensors.values(), lr=0.1)
    for momentum in (0.0, 0.9, 0.9, 0.0, 0.5):
        optimizer.momentum = reference.param_groups[0]["momentum"] = momentum
        gradients.assign({name: rng.standard_normal(shape) for name, shape in SHAPES.items()})
        for name, tensor in tensors.items():
            tensor.grad = torch.tensor(gradients.to_host()[name])
        optimizer.step(gradients)
        reference.step()
        for name in SHAPES:
            np.testing.assert_allclose(parameters[name], tensors[name], rtol=1e-12)
    assert list(optimizer.state_dict()["arrays"]) == ["velocity"]


def test_version_counts_steps(rng):
    network = bp.Sequential([bp.Linear(2, 2)], (2,), device="host")
    version = network.parameters.version
    bp.SGD(network.parameters).step(network.gradients)
    assert network.parameters.version == version + 1


def test_refusals():
    network = bp.Sequential([bp.Linear(2, 2)], (2,), device="host")
    with pytest.raises(bp.BppsaError, match="Nesterov momentum needs a momentum above 0"):
        bp.SGD(network.parameters, nesterov=True)
    with pytest.raises(bp.BppsaError, match="Adam got lr=-1: it takes a finite number"):
        bp.Adam(network.parameters, lr=-1)
    with pytest.raises(bp.BppsaError, match="it takes two, both at least 0 and below 1"):
        bp.Adam(network.parameters, betas=(1.0, 0.9))
    with pytest.raises(bp.BppsaError, match="SGD got dict: it takes a network's parameters"):
        bp.SGD({})
    for betas in (5, "ab", (0.9,), (np.nan, 0.9), ("0.9", "0.99"), (True, 0.9)):
        with pytest.raises(bp.BppsaError, match=r"Adam got betas=.*: it takes two, both at least 0"):
            bp.Adam(network.parameters, betas=betas)
    with pytest.raises(bp.BppsaError, match="SGD got nesterov='no': it takes True or False"):
        bp.SGD(network.parameters, momentum=0.9, nesterov="no")
    for options in ({"lr": None}, {"lr": np.inf}, {"dampening": -1}, {"lr": True}, {"lr": 10**400}):
        with pytest.raises(bp.BppsaError, match="it takes a finite number of at least 0"):
            bp.SGD(network.parameters, **options)
    with pytest.raises(bp.BppsaError, match="SGD got gradients of dict: it takes those of its parameters"):
        bp.SGD(network.parameters).step({})
    with pytest.raises(bp.BppsaError, match="AdamW got gradients of NoneType: it takes those of its"):
        bp.AdamW(network.parameters).step(None)
    with pytest.raises(bp.BppsaError, match="SGD got part of ndarray: it takes a slice of `flat`, or None"):
        bp.SGD(network.parameters).step(network.gradients, part=np.ones(2))
    other = bp.Sequential([bp.Linear(20, 2)], (20,), device="host")
    with pytest.raises(bp.BppsaError, match="of the same network"):
        bp.SGD(network.parameters).step(other.gradients)
    with pytest.raises(bp.CheckpointError, match="optimizer is SGD, this one is Adam"):
        bp.Adam(network.parameters).load_state_dict(bp.SGD(network.parameters).state_dict())
