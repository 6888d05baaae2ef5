"""Convolutions by unfolding and matrix products on CUDA's Python, on the stand-in for CuPy: when they are
taken, and that they give what PyTorch gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from marks import some
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.devices import rules
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.layers import unfolded

#: batch, in_channels, out_channels, kernel, stride, padding, dilation, groups, bias
CASES = [
    (3, 4, 6, 3, 1, 1, 1, 1, True), (2, 3, 5, (3, 2), (2, 1), (1, 0), (1, 2), 1, False),
    (5, 6, 4, 1, 1, 0, 1, 2, True), (1, 2, 3, 5, 3, 4, 1, 1, True),
    (4, 6, 9, 3, 1, "same", 2, 3, False), (2, 1, 2, 2, 2, 0, 1, 1, True),
]  # fmt: skip


@pytest.fixture
def always(monkeypatch):
    """Products of matrices whatever they cost, of two samples at a time or fewer."""
    monkeypatch.setattr(rules, "GPU_CONVOLUTION", {"forward": 0, "vjp": 0, "weight": 0})
    monkeypatch.setattr(unfolded, "_samples", lambda ctx, geometry: 2)


def network(batch, before, after, kernel, stride, padding, dilation, groups, bias, *, dtype, device):
    layer = bp.Conv2d(before, after, kernel, stride, padding, dilation, groups, bias)
    return bp.Sequential([layer], input_shape=(before, 9, 8), seed=0, dtype=dtype, device=device)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", some("float32", long=["float64"]))
def test_it_gives_what_pytorch_gives(case, dtype, stub: CudaDevice, always, rng):
    net = network(*case, dtype=dtype, device=stub)
    x = rng.standard_normal((case[0], case[1], 9, 8))
    y = net.forward(x.astype(dtype))
    gradient = rng.standard_normal(y.shape)
    by_input = net.backward(stub.asarray(gradient.astype(dtype)), method="bp", input_gradient=True)
    assert stub.launched["conv2d_fold"] == -(-case[0] // 2) and not stub.launched["conv2d_vjp"]
    assert stub.launched["conv2d_unfold"] == 2 * -(-case[0] // 2)

    given = x, *(stub.to_host(parameter).astype(float) for parameter in net.parameters.values())
    inputs = [torch.tensor(one, requires_grad=True) for one in given]
    stride, padding, dilation, groups, bias = case[4:]
    theirs = torch.nn.functional.conv2d(
        *inputs, *([] if bias else [None]), stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    theirs.backward(torch.tensor(gradient))
    ours = [y, by_input, *net.gradients.values()]
    for actual, wanted in zip(ours, [theirs.detach(), *(one.grad for one in inputs)], strict=True):
        assert_close(stub.to_host(actual), wanted.numpy(), length=500)


def test_masked_weights_have_gradients_of_0(stub: CudaDevice, always):
    mask = np.arange(3 * 2 * 9).reshape(3, 2, 3, 3) % 3 > 0
    net = bp.Sequential([bp.Conv2d(2, 3, 3, mask=mask)], input_shape=(2, 5, 5), seed=0, device=stub)
    net.backward(net.forward(np.ones((2, 2, 5, 5), np.float32)), method="bp")
    found = stub.to_host(net.gradients["0.weight"])
    assert not found[~mask].any() and found[mask].all()
