"""Convolutions on the host, by each of the ways their twins place outputs in vectors and are cut."""

import os
import platform
import subprocess
import sys

import numba
import numpy as np
import pytest
import torch
from marks import some
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.devices import get_device
from bppsa_cupy.raw_kernels import KERNELS

DTYPES = some(np.dtype("float32"), long=[np.dtype("float64")])

#: name, batch, in_channels, out_channels, side, kernel, stride, padding, groups
CASES = [
    ("one position", 1, 24, 40, 3, 3, 1, 0, 1),
    ("few positions, parts of channels and features", 3, 70, 130, 4, 3, 1, 1, 1),
    ("few positions of groups", 2, 12, 18, 4, 3, 1, 1, 3),
    ("a group a channel", 2, 20, 20, 4, 3, 1, 1, 20),
    ("patches of stride 2, in parts", 3, 64, 24, 33, 3, 2, 1, 1),
    ("samples of stride 2", 17, 16, 24, 16, 5, 2, 2, 1),
    ("samples of groups and stride 3", 10, 16, 8, 32, 5, 3, 2, 2),
    ("rows", 2, 3, 6, 32, 5, 1, 0, 1),
    ("rows of groups, in parts", 40, 64, 8, 32, 3, 1, 1, 2),
    ("samples, many features", 33, 5, 80, 4, 3, 1, 1, 1),
    ("padding beyond the kernel", 2, 3, 5, 4, 2, 1, 3, 1),
    ("1×1", 5, 40, 50, 7, 1, 1, 0, 1),
    ("tiles of samples, and those left", 19, 10, 9, 9, 3, 1, 1, 1),
    ("tiles of groups, more padding", 13, 16, 18, 11, 3, 1, 2, 2),
    ("tiles of one sample, no padding", 1, 8, 20, 12, 3, 1, 0, 1),
    ("tiles of weights", 30, 33, 70, 5, 3, 1, 1, 1),
    ("tiles of weights, rows in parts", 12, 32, 32, 35, 3, 1, 0, 1),
]


def sizes(batch, before, after, side, kernel, stride, padding, groups):
    """The scalar arguments of the three kernels."""
    out = (side + 2 * padding - kernel) // stride + 1
    return (
        batch, before, side, side, after, out, out, kernel, kernel, stride, stride, padding, padding, 1, 1,
        groups,
    )  # fmt: skip


def draw(case, dtype, rng):
    """Input, weight, bias and output gradient."""
    batch, before, after, side, kernel, stride, padding, groups = case
    out = (side + 2 * padding - kernel) // stride + 1
    shapes = (batch, before, side, side), (after, before // groups, kernel, kernel), (after,)
    return [rng.standard_normal(shape).astype(dtype) for shape in (*shapes, (batch, after, out, out))]


def run(case, x, weight, bias, gradient):
    """Output, and gradients by input, weight and bias."""
    y, dx, dw, db = (np.full_like(like, np.nan) for like in (gradient, x, weight, bias))
    device, scalars = get_device("host"), sizes(*case)
    device.launch(KERNELS["conv2d_forward"], x, weight, bias, y, *scalars, True)
    device.launch(KERNELS["conv2d_vjp"], gradient, weight, dx, *scalars)
    device.launch(KERNELS["conv2d_weight_gradient"], x, gradient, dw, db, *scalars, True)
    return y, dx, dw, db


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_way_agrees_with_pytorch(case, dtype, rng):
    batch, _, after, _, kernel, stride, padding, groups = case[1:]
    x, weight, bias, gradient = draw(case[1:], dtype, rng)
    found = run(case[1:], x, weight, bias, gradient)
    inputs = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in (x, weight, bias)]
    theirs = torch.nn.functional.conv2d(*inputs, stride=stride, padding=padding, groups=groups)
    theirs.backward(torch.tensor(gradient.astype(np.float64)))
    positions = batch * gradient[0, 0].size
    terms = {"y": weight[0].size, "dx": after * kernel**2, "dw": positions, "db": positions}
    expected = [theirs.detach(), *(tensor.grad for tensor in inputs)]
    for (name, count), ours, wanted in zip(terms.items(), found, expected, strict=True):
        assert_close(ours, wanted.numpy(), count, what=name)


#: batch, channels, features and side of convolutions by patches, rows, samples and tiles.
ALONE = [(16, 5, 256, 4), (16, 5, 64, 8), (16, 5, 8, 32), (19, 10, 9, 9)]


@pytest.mark.parametrize(("batch", "channels", "features", "side"), ALONE)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_sample_has_the_same_bits_alone_and_among_others(batch, channels, features, side, dtype, rng):
    rest = (channels, features, side, 3, 1, 1, 1)
    x, weight, bias, gradient = draw((batch, *rest), dtype, rng)
    y, dx, _, _ = run((batch, *rest), x, weight, bias, gradient)
    for samples in (slice(0, 1), slice(batch - 1, batch), slice(3, batch - 2)):
        case = samples.stop - samples.start, *rest
        own_y, own_dx, _, _ = run(case, x[samples].copy(), weight, bias, gradient[samples].copy())
        np.testing.assert_array_equal(own_y, y[samples])
        np.testing.assert_array_equal(own_dx, dx[samples])


@pytest.mark.parametrize("channels", [8, 64, 512])
def test_rounding_by_tiles_is_that_of_sums(channels, rng):
    """Errors in float32 are no larger than three times those of sums of products, whatever their depth."""
    case = (2, channels, 8, 8, 3, 1, 1, 1)
    x, weight, bias, gradient = draw(case, "float32", rng)
    sides = [torch.tensor(a.astype(np.float64)) for a in (x, weight, bias)]
    exact = torch.nn.functional.conv2d(*sides, padding=1).numpy()
    single = torch.nn.functional.conv2d(*map(torch.tensor, (x, weight, bias)), padding=1).numpy()
    found, *_ = run(case, x, weight, bias, gradient)
    assert np.abs(found - exact).max() <= 3 * np.abs(single - exact).max()


THREADED = CASES[4:8] + CASES[-2:]


@pytest.mark.parametrize("case", THREADED, ids=[case[0] for case in THREADED])
def test_the_bits_do_not_depend_on_the_number_of_threads(case, rng):
    arrays = draw(case[1:], "float32", rng)
    threads, results = numba.get_num_threads(), []
    try:
        for count in sorted({1, threads}):
            numba.set_num_threads(count)
            results.append(run(case[1:], *arrays))
    finally:
        numba.set_num_threads(threads)
    for one, other in zip(results[0], results[-1], strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_empty_batch_gives_no_output_and_gradients_of_zero(rng):
    case = (0, 3, 5, 6, 3, 1, 1, 1)
    y, dx, dw, db = run(case, *draw(case, "float32", rng))
    assert y.size == dx.size == 0 and not dw.any() and not db.any()


OF_AVX2 = """
import numpy as np, sys
import bppsa_cupy as bp
from bppsa_cupy.raw_kernels.twins.simd.vectors import VECTOR_BYTES, WIDE
assert not WIDE and VECTOR_BYTES == 32
layers = [bp.Conv2d(8, 8, 3, padding=1), bp.Flatten(), bp.Linear(512, 3)]
net = bp.Sequential(layers, (8, 8, 8), seed=0, device="host")
x = np.random.default_rng(0).standard_normal((17, 8, 8, 8)).astype(np.float32)
y = net.forward(x)
net.backward(y, method="bp")
np.savez(sys.argv[1], y=y, **net.gradients)
"""


@pytest.mark.long
@pytest.mark.skipif(platform.machine() != "x86_64", reason="not x86-64")
def test_tiles_are_those_of_the_processor_that_is_compiled_for(tmp_path):
    """Functions for AVX2 alone, whatever the host has."""
    target = {
        "NUMBA_CPU_NAME": "x86-64-v3",
        "NUMBA_CPU_FEATURES": "+avx2,+fma",
        "XDG_CACHE_HOME": str(tmp_path),
    }
    command = [sys.executable, "-c", OF_AVX2, tmp_path / "found.npz"]
    subprocess.run(command, env={**os.environ, **target}, check=True)
    found = np.load(tmp_path / "found.npz")
    layers = [bp.Conv2d(8, 8, 3, padding=1), bp.Flatten(), bp.Linear(512, 3)]
    net = bp.Sequential(layers, (8, 8, 8), seed=0, device="host")
    y = net.forward(np.random.default_rng(0).standard_normal((17, 8, 8, 8)).astype(np.float32))
    net.backward(y, method="bp")
    for name, array in {"y": y, **net.gradients}.items():
        np.testing.assert_allclose(
            found[name], array, rtol=1e-4, atol=1e-4 * np.abs(array).max(), err_msg=name
        )
