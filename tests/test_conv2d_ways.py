"""Convolutions on the host, by each of the ways their twins are cut: sums of planes, tiles, channels."""

import numpy as np
import pytest
import torch
from tolerances import assert_close

from bppsa_cupy.devices import get_device
from bppsa_cupy.raw_kernels import KERNELS

#: name, batch, in_channels, out_channels, side, kernel, stride, padding, groups
CASES = [
    ("one position", 1, 24, 40, 3, 3, 1, 0, 1),
    ("few positions, parts of channels and features", 3, 70, 130, 4, 3, 1, 1, 1),
    ("few positions of groups", 2, 12, 18, 4, 3, 1, 1, 3),
    ("more groups than workers", 2, 20, 20, 4, 3, 1, 1, 20),
    ("tiles, spans of rows", 5, 16, 24, 32, 5, 2, 2, 1),
    ("tiles of groups", 10, 16, 8, 32, 5, 2, 2, 2),
    ("long planes", 2, 3, 6, 32, 5, 1, 0, 1),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_every_way_agrees_with_pytorch(case, dtype, rng):
    _, batch, before, after, side, kernel, stride, padding, groups = case
    out = (side + 2 * padding - kernel) // stride + 1
    x = rng.standard_normal((batch, before, side, side)).astype(dtype)
    weight = rng.standard_normal((after, before // groups, kernel, kernel)).astype(dtype)
    bias = rng.standard_normal(after).astype(dtype)
    gradient = rng.standard_normal((batch, after, out, out)).astype(dtype)
    y, dx = np.full_like(gradient, np.nan), np.full_like(x, np.nan)
    dw, db = np.full_like(weight, np.nan), np.full_like(bias, np.nan)
    device = get_device("host")
    sizes = (
        batch, before, side, side, after, out, out, kernel, kernel, stride, stride, padding, padding, 1, 1,
        groups,
    )  # fmt: skip
    device.launch(KERNELS["conv2d_forward"], x, weight, bias, y, *sizes, True)
    device.launch(KERNELS["conv2d_vjp"], gradient, weight, dx, *sizes)
    device.launch(KERNELS["conv2d_weight_gradient"], x, gradient, dw, db, *sizes, True)

    inputs = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in (x, weight, bias)]
    theirs = torch.nn.functional.conv2d(*inputs, stride=stride, padding=padding, groups=groups)
    theirs.backward(torch.tensor(gradient.astype(np.float64)))
    terms = {"y": weight[0].size, "dx": after * kernel**2, "dw": batch * out**2, "db": batch * out**2}
    expected = [theirs.detach(), *(tensor.grad for tensor in inputs)]
    for name, ours, wanted in zip(("y", "dx", "dw", "db"), (y, dx, dw, db), expected, strict=True):
        assert_close(ours, wanted.numpy(), terms[name], what=name)
