"""Optimizers against PyTorch over several steps, and the flag that blocks a bad gradient."""

import numpy as np
import pytest
import torch
from optimizer_cases import SHAPES, filled

import bppsa_cupy as bp
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
