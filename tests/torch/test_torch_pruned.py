"""Pruned Conv2d and Linear of PyTorch by the list of what is kept, against PyTorch with masks."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.nn.utils import prune

import bppsa_cupy.torch as ours
from bppsa_cupy.torch import pruned


def model(seed: int = 0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(4, 6, (3, 2), stride=(1, 2), groups=2, bias=False, padding="valid", dilation=(2, 1)),
        torch.nn.Flatten(),
        torch.nn.Linear(6 * 4 * 4, 5),
    ).double()


class MaskedConv2d(torch.nn.Conv2d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self._conv_forward(input, self.weight * self.mask, self.bias)


class MaskedLinear(torch.nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(input, self.weight * self.mask, self.bias)


def thinned(by: str) -> torch.nn.Sequential:
    made = model()
    if by == "attribute":
        for index in (0, 2, 4):
            made[index].__class__ = MaskedLinear if index == 4 else MaskedConv2d
            made[index].register_buffer("mask", (torch.rand_like(made[index].weight) < 0.08).float())
        return made
    for index in (0, 2, 4):
        prune.random_unstructured(made[index], "weight", 0.92)
        if by == "zeros":
            prune.remove(made[index], "weight")
    return made


def results(net: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    y = net(x)
    parameters = list(net.parameters())
    return [y.detach(), *torch.autograd.grad(y.square().sum(), [x, *parameters])]


def masks_of(net: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: pruned.mask_of(module) != 0
        for name, module in net.named_modules()
        if pruned.mask_of(module) is not None
    }


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("by", ["zeros", "prune"])
def test_results_state_dict_and_optimizer_are_pytorchs(by: str, batch: int) -> None:
    theirs, net = thinned(by), thinned(by)
    parameters = list(net.parameters())
    assert ours.convert(net, sparse=0.8) is net
    assert [type(net[k]) for k in (0, 2)] == [ours.PrunedConv2d] * 2 and type(net[4]) is ours.PrunedLinear
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    assert net.state_dict().keys() == theirs.state_dict().keys()
    x = torch.randn(batch, 2, 8, 8, dtype=torch.float64)
    expected, actual = results(theirs, x), results(net, x)
    # The whole weight's gradient of zeros that are no mask is PyTorch's; ours is of what is kept.
    masks = [mask for mask in masks_of(net).values()]
    for ours_, theirs_ in zip(actual, expected, strict=True):
        mask = next((m for m in masks if by == "zeros" and m.shape == theirs_.shape), None)
        torch.testing.assert_close(ours_, theirs_ if mask is None else theirs_ * mask, rtol=1e-12, atol=1e-12)
    for single in (theirs, net):  # without a batch
        single[3] = torch.nn.Flatten(0)
    torch.testing.assert_close(net(x[0]), theirs(x[0]), rtol=1e-12, atol=1e-12)


COMPACT = {"sparse": 0.8, "compact": True}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, 1e-2, amsgrad=True),
}


def train(net: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    losses, draw = [], torch.Generator().manual_seed(steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(torch.randn(3, 2, 8, 8, dtype=torch.float64, generator=draw)).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("by", ["prune", "attribute"])
def test_compact_training_is_pytorchs(by: str, make) -> None:
    theirs, net = thinned(by), thinned(by)
    a, b = make(theirs.parameters()), make(net.parameters())
    parameters, kinds = list(net.parameters()), [type(m) for m in net]
    train(theirs, a, 3), train(net, b, 3)
    alive = net(torch.ones(1, 2, 8, 8, dtype=torch.float64))
    ours.convert(net, **COMPACT, mask_attribute="mask", optimizer=b)
    weights = [net[k]._parameters[pruned.weight_name(net[k])] for k in (0, 2, 4)]
    for weight, mask in zip(weights, masks_of(net).values(), strict=True):
        assert weight.shape == weight.grad.shape == (int(mask.sum()),)
    assert not by == "attribute" or isinstance(net[4], MaskedLinear)
    np.testing.assert_allclose(train(net, b, 20), train(theirs, a, 20), rtol=1e-10)
    others = [copy.deepcopy(net), pickle.loads(pickle.dumps(net))]
    assert train(others[0], make(others[0].parameters()), 2) == train(
        others[1], make(others[1].parameters()), 2
    )
    assert ours.revert(net, optimizer=b) is net and [type(m) for m in net] == kinds
    assert all(p is q for p, q in zip(net.parameters(), parameters, strict=True)) and alive.isfinite().all()
    np.testing.assert_allclose(train(net, b, 5), train(theirs, a, 5), rtol=1e-10)
    for key, value in theirs.state_dict().items():
        torch.testing.assert_close(net.state_dict()[key], value, rtol=1e-10, atol=1e-10)
    assert len(list(net.buffers())) == 3 and prune.is_pruned(net) == (by == "prune")


@pytest.mark.parametrize("by", ["zeros", "prune", "attribute"])
def test_compact_state_dicts_are_dense(by: str) -> None:
    theirs, net = thinned(by), ours.convert(thinned(by), **COMPACT, mask_attribute="mask")
    x = torch.randn(2, 2, 8, 8, dtype=torch.float64)
    if by != "zeros":  # other values, under the same mask
        with torch.no_grad():
            for parameter in theirs.parameters():
                parameter.add_(1)
    assert str(net.load_state_dict(theirs.state_dict())) == "<All keys matched successfully>"
    state = net.state_dict()
    assert state.keys() == theirs.state_dict().keys()
    assert all(torch.equal(state[key], value) for key, value in theirs.state_dict().items())
    expected, actual = results(theirs, x), results(net, x)
    torch.testing.assert_close(actual[:2], expected[:2], rtol=1e-12, atol=1e-12)
    masks = {mask.shape: mask for mask in masks_of(net).values()}
    for got, dense in zip(actual[2:], expected[2:], strict=True):
        torch.testing.assert_close(
            got, dense[masks[dense.shape]] if dense.dim() > 1 else dense, rtol=1e-12, atol=1e-12
        )
    layer, inputs = net[4], torch.randn(2, 96, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(
        lambda x, w: torch.func.functional_call(layer, {pruned.weight_name(layer): w}, (x,)).sin(),
        (inputs, layer._parameters[pruned.weight_name(layer)]),
    )
    torch.testing.assert_close(torch.func.vmap(layer)(inputs), layer(inputs))
    if by == "prune":
        state["4.weight_mask"] = 1 - state["4.weight_mask"]
        with pytest.raises(RuntimeError, match="revert"):
            net.load_state_dict(state)


def test_a_compact_layer_refuses_other_masks_and_what_it_cannot_convert() -> None:
    for by in ("zeros", "prune", "attribute"):
        net = ours.convert(thinned(by), **COMPACT, mask_attribute="mask")
        before = net.state_dict()
        for change, *arguments in (
            (prune.remove, net[0], "weight"),
            (prune.random_unstructured, net[0], "weight", 0.5),
            (prune.identity, net[4], "bias"),
            (prune.global_unstructured, [(net[2], "weight")], prune.L1Unstructured),
        ):
            with pytest.raises(ValueError, match="revert"):
                change(*arguments, **({"amount": 0.5} if change is prune.global_unstructured else {}))
        assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    for arguments in ({"compact": True}, {"sparse": "auto", "mask_attribute": "weight"}):
        with pytest.raises(ValueError):
            ours.convert(thinned("attribute"), **arguments)
    shared = thinned("zeros")
    shared.append(torch.nn.Linear(96, 5).double()).append(shared[4])
    shared[5].weight = shared[4].weight
    with pytest.raises(ValueError, match="share"):
        ours.convert(shared, **COMPACT)
    factored = thinned("prune")
    optimizer = torch.optim.Adafactor(factored.parameters())
    train(factored, optimizer, 1)
    with pytest.raises(ValueError, match="row_var"):
        ours.convert(factored, **COMPACT, optimizer=optimizer)
    assert type(factored[0]) is torch.nn.Conv2d


@pytest.mark.long
def test_a_compact_model_trains_on_in_another_process(tmp_path) -> None:
    net = ours.convert(thinned("prune"), **COMPACT)
    optimizer = OPTIMIZERS["adam"](net.parameters())
    train(net, optimizer, 2)
    torch.save((net, net.state_dict(), optimizer.state_dict()), tmp_path / "net.pt")
    script = (
        "import torch, sys\nsys.path.insert(0, sys.argv[1])\nimport test_torch_pruned as t\n"
        "net, state, steps = torch.load(sys.argv[2], weights_only=False)\n"
        "other = t.ours.convert(t.thinned('prune'), **t.COMPACT)\nother.load_state_dict(state)\n"
        "for one in (net, other):\n"
        "    optimizer = t.OPTIMIZERS['adam'](one.parameters())\n"
        "    optimizer.load_state_dict(t.copy.deepcopy(steps))\n    print(t.train(one, optimizer, 3))\n"
    )
    call = [sys.executable, "-c", script, os.path.dirname(__file__), str(tmp_path / "net.pt")]
    lines = subprocess.run(call, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines == [str(train(net, optimizer, 3))] * 2


def test_absent_weights_stay_absent_until_reverted() -> None:
    net = ours.convert(thinned("zeros"), sparse=0.8)
    before, x = net.state_dict(), torch.randn(2, 2, 8, 8, dtype=torch.float64)
    masks = masks_of(net)
    full = {name: torch.ones_like(value) if value.dim() > 1 else value for name, value in before.items()}
    net.load_state_dict(full)
    got = net(x)
    with torch.no_grad():
        for name, mask in masks.items():
            net.get_submodule(name).weight[~mask] = torch.nan
    assert torch.equal(net(x), got)
    ours.revert(net)
    assert type(net[0]) is torch.nn.Conv2d and not list(net.buffers())
    torch.testing.assert_close(net(x), got, rtol=1e-12, atol=1e-12)
    assert ours.revert(net) is net


@pytest.mark.parametrize("compact", [False, True])
def test_inference_with_dense_weights_leaves_masked_weights_out(compact: bool) -> None:
    theirs, net = thinned("zeros"), ours.convert(thinned("zeros"), sparse="auto", compact=compact)
    x = torch.randn(1, 2, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        for name, mask in masks_of(net).items():
            if not compact:
                net.get_submodule(name).weight[~mask] = torch.nan
        for _ in range(2):  # the first pass chooses between list and dense weight
            torch.testing.assert_close(net(x), theirs(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("write", ["autograd", "mul_", "copy_", "swap", "numpy"])
def test_a_mask_that_is_written_is_followed(write: str) -> None:
    theirs, net = thinned("prune"), ours.convert(thinned("prune"), sparse=0.8)
    x = torch.randn(2, 2, 8, 8, dtype=torch.float64)
    results(net, x)
    for module in (theirs, net):
        for index in (0, 2, 4):
            mask = module[index].weight_mask
            new = (torch.rand(mask.shape, generator=torch.Generator().manual_seed(index)) < 0.1).to(
                mask.dtype
            )
            if write == "swap":  # as many weights in each row
                new = mask.flatten(1).flip(1).reshape(mask.shape)
            if write == "autograd":
                mask[...] = new
            elif write == "numpy":
                mask.numpy()[...] = new.numpy()
            else:
                mask.data.mul_(new) if write == "mul_" else mask.data.copy_(new)
    for a, b in zip(results(theirs, x), results(net, x), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-12, atol=1e-12)


def test_a_converted_module_has_pytorchs_weight_and_hooks() -> None:
    theirs, net = thinned("prune"), ours.convert(thinned("prune"), sparse=0.8)
    for module in (theirs, net):
        with torch.no_grad():
            module[0].weight_orig.add_(1)
        module(torch.zeros(1, 2, 8, 8, dtype=torch.float64))
        assert prune.is_pruned(module[0])
    assert torch.equal(net[0].weight, theirs[0].weight)
    (kind,) = (type(hook) for hook in theirs[0]._forward_pre_hooks.values())
    (hook,) = ours.revert(net)[0]._forward_pre_hooks.values()
    assert type(hook) is kind and torch.equal(net[0].weight, theirs[0].weight)


def test_a_mask_in_the_memory_of_an_earlier_one_is_another() -> None:
    theirs, net = thinned("prune"), ours.convert(thinned("prune"), sparse=0.8)
    x, memory = torch.randn(3, 2, 8, 8, dtype=torch.float64), np.empty((5, 96))
    for seed in range(2):
        memory[...] = np.random.default_rng(seed).uniform(size=memory.shape) < 0.1
        for module in (theirs, net):
            module[4].weight_mask = torch.from_numpy(memory)
        torch.testing.assert_close(net(x), theirs(x), rtol=1e-12, atol=1e-12)


def test_copies_pickles_and_derivatives_of_derivatives() -> None:
    net = ours.convert(thinned("zeros"), sparse=0.8)
    x = torch.randn(2, 2, 8, 8, dtype=torch.float64, requires_grad=True)
    expected = net(x)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(other(x), expected) and type(other[0]) is ours.PrunedConv2d
    layer = net[4]
    inputs = torch.randn(2, 96, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: layer(x).sin(), (inputs,))
    assert torch.autograd.gradcheck(
        net[2], (torch.randn(1, 4, 8, 8, dtype=torch.float64, requires_grad=True),)
    )
    with torch.autograd.graph.save_on_cpu():
        y = net(x)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], torch.autograd.grad(expected.sum(), x)[0])
    rows = torch.autograd.functional.jacobian(layer, inputs, vectorize=True)
    torch.testing.assert_close(rows, torch.autograd.functional.jacobian(layer, inputs))
    torch.testing.assert_close(torch.func.vmap(layer)(inputs), layer(inputs))


def test_a_gradient_that_is_held_is_not_overwritten() -> None:
    net = ours.convert(thinned("prune"), sparse=0.8)
    x = torch.randn(2, 2, 8, 8, dtype=torch.float64)

    def gradients(factor: float) -> list[torch.Tensor]:
        net.zero_grad()
        (factor * net(x)).sum().backward()
        return [parameter.grad for parameter in net.parameters()]

    held = gradients(1)
    expected = [gradient.clone() for gradient in held]
    torch.testing.assert_close(gradients(2), [2 * gradient for gradient in expected])
    assert all(map(torch.equal, held, expected))
    for gradient in gradients(3):  # outside of the mask too, and then let go
        gradient.add_(1)
    del gradient
    assert all(map(torch.equal, gradients(1), expected))


@pytest.mark.parametrize("empty", ["batch", "mask"])
def test_of_nothing(empty: str) -> None:
    net = thinned("prune")
    x = torch.randn(0 if empty == "batch" else 2, 2, 8, 8, dtype=torch.float64)
    if empty == "mask":
        for index in (0, 2, 4):
            net[index].weight_mask[...] = 0
    expected = results(net, x)
    for a, b in zip(expected, results(ours.convert(net, sparse=0.8), x), strict=True):
        assert torch.equal(a, b)


def test_inputs_that_do_not_fit_raise_pytorchs_errors() -> None:
    shapes = (2, 2, 1, 2), (2, 4, 8, 8), (8, 8), (1, 1, 2, 8, 8), (2, 95), ()
    theirs, net = thinned("prune"), ours.convert(thinned("prune"), sparse=0.8)
    for place, shape in itertools.product((2, 4), shapes):
        x = torch.ones(shape, dtype=torch.float64)
        if (place, shape) == (2, (2, 4, 8, 8)):
            continue
        with pytest.raises(RuntimeError) as error:
            theirs[place](x)
        with pytest.raises(RuntimeError, match=re.escape(str(error.value))):
            net[place](x)


def test_what_is_taken_and_what_is_left() -> None:
    assert all(type(m) is not ours.PrunedLinear for m in ours.convert(model(), sparse="auto").modules())
    half = model()
    prune.random_unstructured(half[0], "weight", 0.7)
    prune.random_unstructured(half[4], "weight", 0.7)
    ours.convert(half, sparse="auto")  # of a linear layer a tenth would have to be left
    assert type(half[0]) is ours.PrunedConv2d and type(half[4]) is torch.nn.Linear
    assert type(ours.convert(half, sparse=0.7)[4]) is ours.PrunedLinear
    reflecting = torch.nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect")
    prune.random_unstructured(reflecting, "weight", 0.9)
    assert type(ours.convert(reflecting, sparse="auto")) is torch.nn.Conv2d


def test_max_pooling_has_pytorchs_bits_and_derivatives() -> None:
    compared = 0
    draw = torch.Generator().manual_seed(0)
    options = itertools.product(
        (1, 2, 3, (2, 3)), (None, 1, (1, 2)), (0, 1), (1, 2), (False, True), (False, True)
    )
    for *sizes, ceil, with_indices in options:
        theirs = torch.nn.MaxPool2d(*sizes, ceil_mode=ceil, return_indices=with_indices)
        net = torch.nn.Sequential(copy.deepcopy(theirs), thinned("zeros")[0])
        pool = ours.convert(net, sparse=0.8)[0]
        assert type(pool) is pruned.MaxPool2d
        for x in (
            torch.randn(2, 3, 7, 9, generator=draw),
            torch.ones(1, 8, 6),
            torch.full((1, 1, 4, 4), torch.nan),
        ):
            x.requires_grad_()
            try:
                expected = theirs(x)
            except RuntimeError as error:
                with pytest.raises(RuntimeError, match=re.escape(str(error))):
                    pool(x)
                continue
            with torch.no_grad():
                quiet = pool(x)
            y, z, quiet = (r[0] if with_indices else r for r in (expected, pool(x), quiet))
            assert all(torch.equal(r.nan_to_num(7), y.nan_to_num(7)) for r in (z, quiet))
            gradients = [
                torch.autograd.grad(r, x, torch.arange(r.numel()).view_as(r).float())[0] for r in (y, z)
            ]
            assert torch.equal(*gradients)
            compared += not with_indices
        assert type(ours.revert(net)[0]) is torch.nn.MaxPool2d
    assert compared > 100
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64, requires_grad=True)
    pool = ours.convert(torch.nn.Sequential(torch.nn.MaxPool2d(2), thinned("zeros")[0]), sparse=0.8)[0]
    assert torch.autograd.gradgradcheck(lambda x: pool(x).sin(), (x,))
    rows = torch.autograd.functional.jacobian(pool, x, vectorize=True)
    assert torch.equal(rows, torch.autograd.functional.jacobian(pool, x))
    assert torch.equal(torch.func.vmap(pool)(x), pool(x))
