"""The ways of convolutions against PyTorch: windows and tiles on the host, lists of kept weights, and
unfolded patches on CUDA's Python on the stand-in for CuPy."""

from __future__ import annotations

import math
from contextlib import contextmanager

import numba
import numpy as np
import pytest
import torch
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from hypothesis import example, given, settings
from hypothesis import strategies as st
from marks import some, some_rows
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.devices import rules
from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.layers import conv2d

DTYPES = some(np.dtype("float64"), long=[np.dtype("float32")])

#: name, batch, in_channels, out_channels, side, kernel, stride, padding, groups; every run takes three
CASES = [
    ("rows of groups, in parts", 40, 64, 8, 32, 3, 1, 1, 2),
    ("padding beyond the kernel", 2, 3, 5, 4, 2, 1, 3, 1),
    ("tiles of groups, more padding", 13, 16, 18, 11, 3, 1, 2, 2),
    ("one position", 1, 24, 40, 3, 3, 1, 0, 1),
    ("few positions, parts of channels and features", 3, 70, 130, 4, 3, 1, 1, 1),
    ("few positions of groups", 2, 12, 18, 4, 3, 1, 1, 3),
    ("a group a channel", 2, 20, 20, 4, 3, 1, 1, 20),
    ("patches of stride 2, in parts", 3, 64, 24, 33, 3, 2, 1, 1),
    ("samples of stride 2", 17, 16, 24, 16, 5, 2, 2, 1),
    ("samples of groups and stride 3", 10, 16, 8, 32, 5, 3, 2, 2),
    ("rows", 2, 3, 6, 32, 5, 1, 0, 1),
    ("samples, many features", 33, 5, 80, 4, 3, 1, 1, 1),
    ("1×1", 5, 40, 50, 7, 1, 1, 0, 1),
    ("tiles of samples, and those left", 19, 10, 9, 9, 3, 1, 1, 1),
    ("tiles of one sample, no padding", 1, 8, 20, 12, 3, 1, 0, 1),
    ("tiles of weights", 30, 33, 70, 5, 3, 1, 1, 1),
    ("tiles of weights, rows in parts", 12, 32, 32, 35, 3, 1, 0, 1),
]


@contextmanager
def threads(count):
    before = numba.get_num_threads()
    numba.set_num_threads(count)
    try:
        yield
    finally:
        numba.set_num_threads(before)


def network(layer, shape, dtype, device="host"):
    return bp.Sequential([layer], shape, seed=0, dtype=dtype, device=device)


def passes(net, x, gradient):
    """Output, and gradients by input and parameters, on the host."""
    device = net.device
    y = device.to_host(net.forward(x)).copy()
    by_input = net.backward(device.asarray(gradient), "bp", input_gradient=True)
    return [y, device.to_host(by_input).copy(), *net.gradients.to_host().values()]


def draw(net, batch, rng):
    shapes = (batch, *net.input_shape), (batch, *net.output_shape)
    return [rng.standard_normal(shape).astype(net.dtype) for shape in shapes]


def compare(net, x, gradient, actual, **options):
    """Also where a mask keeps some weights: PyTorch's is multiplied by it."""
    layer, state = net.layers[0], net.state_dict()
    arrays = x, *(array.astype(np.float64) for array in state.values())
    inputs = [torch.tensor(array.astype(np.float64), requires_grad=True) for array in arrays]
    mask = torch.tensor(np.ones(layer.weight_shape) if layer.mask is None else layer.mask)
    bias = inputs[2:] if layer.bias else [None]
    theirs = torch.nn.functional.conv2d(inputs[0], inputs[1] * mask, *bias, **options)
    theirs.backward(torch.tensor(gradient.astype(np.float64)))
    positions, terms = gradient[:, 0].size, layer.weight_shape[0] * np.prod(layer.weight_shape[1:])
    for number, (ours, wanted) in enumerate(
        zip(actual, [theirs.detach(), *(i.grad for i in inputs)], strict=True)
    ):
        assert_close(ours, wanted.numpy(), positions if number > 1 else terms, label=str(number))


@pytest.mark.parametrize("case", some(*CASES[:3], long=CASES[3:]), ids=lambda case: case[0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_way_on_the_host_agrees_with_pytorch(case, dtype, rng):
    batch, before, after, side, kernel, stride, padding, groups = case[1:]
    options = {"stride": stride, "padding": padding, "groups": groups}
    net = network(bp.Conv2d(before, after, kernel, **options), (before, side, side), dtype)
    x, gradient = draw(net, batch, rng)
    compare(net, x, gradient, passes(net, x, gradient), **options)


#: Layers whose samples go by tiles, lists of kept weights, patches, rows and samples; every run takes two.
ALONE = [
    (bp.Conv2d(10, 9, 3, padding=1), (10, 9, 9)),
    (bp.Conv2d(70, 50, 1, mask=np.arange(3500).reshape(50, 70, 1, 1) % 17 == 0), (70, 1, 1)),
    (bp.Conv2d(5, 256, 3, padding=1), (5, 4, 4)), (bp.Conv2d(5, 64, 3, padding=1), (5, 8, 8)),
    (bp.Conv2d(5, 8, 3, padding=1), (5, 32, 32)),
    (bp.Conv2d(24, 40, 3, padding=1, mask=np.arange(8640).reshape(40, 24, 3, 3) % 7 == 0), (24, 9, 7)),
]  # fmt: skip


@pytest.mark.parametrize("layer, shape", some_rows(*ALONE[:2], long=ALONE[2:]), ids=repr)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_sample_has_the_same_bits_alone_and_among_others_on_any_threads(layer, shape, dtype, rng):
    net = network(layer, shape, dtype)
    x, gradient = draw(net, 37, rng)
    full = passes(net, x, gradient)
    with threads(1):
        for actual, expected in zip(passes(net, x, gradient), full, strict=True):
            np.testing.assert_array_equal(actual, expected)
    for some_ in (slice(0, 1), slice(36, 37), slice(3, 12), slice(0, 16)):
        y, by_input, *_ = passes(net, x[some_].copy(), gradient[some_].copy())
        np.testing.assert_array_equal(y, full[0][some_])
        np.testing.assert_array_equal(by_input, full[1][some_])


# ---- lists of kept weights ----

KEEPS = {
    "some": 0.3,
    "few": 0.05,
    "all": 1.0,
    "none": 0.0,
    "one": 0.0,
    "empty rows": 0.3,
    "channels gone": 0.3,
}


def mask_of(rng, keeps, shape):
    mask = rng.random(shape) < KEEPS[keeps]
    if keeps == "one":
        mask[tuple(rng.integers(0, size) for size in shape)] = True
    elif keeps == "empty rows":
        mask[::2] = False
    elif keeps == "channels gone":
        mask[:, rng.integers(0, shape[1]) :] = False
    return mask


PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))


@settings(deadline=None)
@given(
    st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 3)), st.integers(1, 33),
    st.tuples(st.integers(1, 19), st.integers(1, 19)), PAIRS, PAIRS, PAIRS, PAIRS,
    st.sampled_from(sorted(KEEPS)), st.integers(0, 9),
)  # fmt: skip
@example((64, 64, 1), 16, (4, 4), (3, 3), (1, 1), (1, 1), (1, 1), "some", 0)
@example((8, 70, 1), 64, (1, 1), (1, 1), (1, 1), (0, 0), (1, 1), "few", 0)
@example((4, 3, 1), 16, (32, 17), (3, 3), (1, 1), (1, 1), (1, 1), "some", 0)
@example((2, 2, 1), 17, (3, 2), (2, 2), (3, 3), (3, 3), (1, 1), "some", 0)
def test_every_geometry_and_mask_agrees_with_pytorch(
    dtype, channels, batch, size, kernel, stride, padding, dilation, keeps, seed
):
    before, after, groups = channels
    rng, shape = np.random.default_rng(seed), (before * groups, *size)
    padding = tuple(p + d * (k - 1) // 2 for p, d, k in zip(padding, dilation, kernel, strict=True))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    mask = mask_of(rng, keeps, (after * groups, before, *kernel))
    net = network(bp.Conv2d(before * groups, after * groups, kernel, **options, mask=mask), shape, dtype)
    x, gradient = draw(net, batch, rng)
    compare(net, x, gradient, passes(net, x, gradient), **options)


@pytest.mark.parametrize("share", [0.05, 0.7])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_masked_weight_is_absent_for_nan_and_infinity(share, bad, rng):
    """Of a channel that nothing keeps, nothing is seen, and nothing reaches one, by either way."""
    layers = [bp.Conv2d(6, 8, 3, padding=1), bp.Flatten(), bp.Linear(8 * 25, 7)]
    net = bp.Sequential(layers, (6, 5, 5), dtype="float64", device="host")
    masks = {name: rng.random(net.parameters[name].shape) < share for name in ("0.weight", "2.weight")}
    masks["0.weight"][:, 2], masks["2.weight"][3] = False, False
    net.set_masks(masks)
    x, gradient = rng.standard_normal((5, 6, 5, 5)), rng.standard_normal((5, 7))
    good = passes(net, x, gradient)
    x[1, 2, 3, 3], gradient[2, 3] = bad, bad
    result = passes(net, x, gradient)
    for wanted, other in zip(good[:-1], result[:-1], strict=True):
        assert_close(other, wanted, 600)
    if share > 0.1:  # samples that go by the list after all do not change others' bits
        np.testing.assert_array_equal(result[0][[0, 2, 3, 4]], good[0][[0, 2, 3, 4]])
        np.testing.assert_array_equal(result[1][[0, 1, 3, 4]], good[1][[0, 1, 3, 4]])


# ---- unfolded patches ----

#: batch, in_channels, out_channels, kernel, stride, padding, dilation, groups, bias
UNFOLDED = [
    (3, 4, 6, 3, 1, 1, 1, 1, True), (2, 3, 5, (3, 2), (2, 1), (1, 0), (1, 2), 1, False),
    (5, 6, 4, 1, 1, 0, 1, 2, True), (1, 2, 3, 5, 3, 4, 1, 1, True),
    (4, 6, 9, 3, 1, "same", 2, 3, False), (2, 1, 2, 2, 2, 0, 1, 1, True),
]  # fmt: skip


@pytest.mark.parametrize("case", UNFOLDED, ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_unfolded_patches_agree_with_pytorch(case, masked, stub: CudaDevice, monkeypatch, rng):
    """Products of matrices whatever they cost, of two samples at a time or fewer."""
    monkeypatch.setattr(rules, "GPU_CONVOLUTION", {"forward": 0, "vjp": 0, "weight": 0})
    batch, before, after, kernel, *rest = case
    layer = bp.Conv2d(before, after, kernel, *rest)
    sample = before * math.prod(layer.kernel_size) * math.prod(layer.geometry((before, 9, 8)).out_size)
    monkeypatch.setattr(conv2d, "PATCH_BYTES", 2 * 4 * sample)
    if masked:
        layer = layer.with_mask(rng.random(layer.weight_shape) < 0.7)
    net = network(layer, (before, 9, 8), "float32", stub)
    x, gradient = draw(net, batch, rng)
    result = passes(net, x, gradient)
    assert stub.launched["conv2d_fold"] == -(-batch // 2) and not stub.launched["conv2d_vjp"]
    options = dict(zip(("stride", "padding", "dilation", "groups"), rest, strict=False))
    compare(net, x, gradient, result, **options)
