"""Groups of parameters with hyper-parameters of their own, against PyTorch's param_groups."""

import numpy as np
import pytest
import torch
from optimizer_cases import SHAPES, filled

import bppsa_cupy as bp

#: Optimizers with groups: the places of each, what differs, and the names that PyTorch is given.
CASES = [
    (bp.SGD, torch.optim.SGD, {"lr": 0.1}, [(["0"], {"lr": 0.3}, ["0.weight", "0.bias"])]),
    (
        bp.SGD,
        torch.optim.SGD,
        {"lr": 0.1, "weight_decay": 0.1},
        [
            ("0.bias", {"weight_decay": 0.0}, ["0.bias"]),
            (["2.weight"], {"momentum": 0.9, "nesterov": True}, ["2.weight"]),
        ],
    ),
    (
        bp.Adam,
        torch.optim.Adam,
        {"lr": 0.1},
        [([2], {"lr": 0.01, "betas": [0.5, 0.9], "eps": 1e-4}, ["2.weight"])],
    ),
    (
        bp.AdamW,
        torch.optim.AdamW,
        {"lr": 0.1},
        [({"0.bias": None}, {"weight_decay": 0.0}, ["0.bias"]), (2, {"lr": 0.5}, ["2.weight"])],
    ),
]


def ours_and_theirs(parameters, ours, theirs, options, groups):
    tensors = {name: torch.tensor(array.astype(np.float64)) for name, array in parameters.to_host().items()}
    named = {name for *_, names in groups for name in names}
    lists = [{"params": [tensors[name] for name in tensors if name not in named]}]
    lists += [{"params": [tensors[name] for name in names], **own} for _, own, names in groups]
    given_groups = [{"params": places, **own} for places, own, _ in groups]
    return ours(parameters, **options, groups=given_groups), theirs(lists, **options), tensors


@pytest.mark.parametrize("ours, theirs, options, groups", CASES)
def test_steps_equal_pytorch(device, dtype, rng, ours, theirs, options, groups):
    parameters, gradients = filled(device, dtype, rng), filled(device, dtype, rng)
    optimizer, reference, tensors = ours_and_theirs(parameters, ours, theirs, options, groups)
    rates = [group["lr"] for group in reference.param_groups]
    launched = dict(device.launched)
    for step in range(4):
        gradients.assign({name: rng.standard_normal(shape) for name, shape in SHAPES.items()})
        for name, tensor in tensors.items():
            tensor.grad = torch.tensor(gradients.to_host()[name].astype(np.float64))
        optimizer.lr_factor = 1 / (1 + step)
        for group, rate in zip(reference.param_groups, rates, strict=True):
            group["lr"] = rate / (1 + step)
        optimizer.step(gradients)
        reference.step()
    for name, array in parameters.to_host().items():
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(array, tensors[name], rtol=400 * eps, atol=40 * eps)
    steps = {n: k - launched.get(n, 0) for n, k in device.launched.items() if n in ("sgd_step", "adam_step")}
    assert sum(steps.values()) == 4, "a step is one launch, whatever the groups"
