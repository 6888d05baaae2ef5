"""Dropout: PyTorch's meaning, numbers that follow from seed, layer and pass, one mask forward and back."""

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from layer_cases import make_context
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.raw_kernels.elementwise import philox

#: Counter, key and numbers of Philox4x32-10: the known answers of its authors' library, Random123.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def reference_philox(counter, key):
    """Philox4x32-10 on Python's integers."""
    (c0, c1, c2, c3), (k0, k1), mask = counter, key, 2**32 - 1
    for _ in range(10):
        even, odd = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = odd >> 32 ^ c1 ^ k0, odd & mask, even >> 32 ^ c3 ^ k1, even & mask
        k0, k1 = k0 + 0x9E3779B9 & mask, k1 + 0xBB67AE85 & mask
    return c0, c1, c2, c3


def reference_kept(size, p, draw):
    """Which elements dropout keeps."""
    key, layer, number = draw
    halves = (key & (2**32 - 1), key >> 32)
    numbers = [reference_philox((group, 0, layer, number), halves) for group in range(-(-size // 4))]
    return np.ravel(numbers)[:size] >= p * 2**32


def masks_of(net, passes=1):
    """Which elements of ones the first layer keeps, a pass each."""
    x = np.ones((2, *net.input_shape), net.dtype)
    return [np.array(net.forward(x)) != 0 for _ in range(passes)]


def network(p=0.4, **options):
    return bp.Sequential([bp.Dropout(p), bp.Dropout(0.0)], (3, 50), device="host", **options)


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_known_answers(counter, key, expected):
    assert reference_philox(counter, key) == expected
    group, whole_key = (np.array([a | b << 32], np.uint64).view(np.int64)[0] for a, b in (counter[:2], key))
    assert philox(group, *counter[2:], whole_key) == expected


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("batch", "shape"), [(1, (1,)), (3, (7,)), (2, (3, 4, 5))])
def test_what_is_kept_and_its_scale(p, batch, shape, device, dtype, rng):
    layer = bp.Dropout(p)
    ctx = make_context(layer, device, dtype, shape)
    ctx.draw = (2**62 + 12345, 7, 11)
    x = rng.standard_normal((batch, *shape)).astype(dtype)
    gradient = rng.standard_normal(x.shape).astype(dtype)
    scale = reference_kept(x.size, p, ctx.draw).reshape(x.shape) * (1 / (1 - p) if p < 1 else 0)
    assert_close(device.to_host(layer.forward(ctx, device.asarray(x))), x * scale)
    assert_close(device.to_host(layer.vjp(ctx, device.asarray(gradient))), gradient * scale)
    jacobian = layer.jacobian(shape)
    values = device.asarray(np.full((jacobian.pattern.nnz, batch), np.nan, dtype))
    jacobian.fill(device, ctx.parameters, ctx.saved, values)
    assert_close(device.to_host(values), scale.reshape(batch, -1).T)


def test_evaluation_is_the_identity(device, dtype):
    layer = bp.Dropout(0.9)
    ctx = make_context(layer, device, dtype, (5,))
    ctx.training = False
    x = device.asarray(np.arange(10, dtype=dtype).reshape(2, 5))
    assert layer.forward(ctx, x) is x and layer.vjp(ctx, x) is x
    values = device.asarray(np.full((5, 2), np.nan, dtype))
    layer.jacobian((5,)).fill(device, ctx.parameters, ctx.saved, values)
    assert (device.to_host(values) == 1).all()


@given(st.floats(0, 1))
@example(5e-324)
@example(1 - 2**-53)
def test_the_part_that_is_dropped(p):
    """Within five standard deviations and one element; the output's expectation is the input as PyTorch's."""
    net = bp.Sequential([bp.Dropout(p)], (20000,), device="host", dtype="float64")
    y = net.forward(np.ones((1, 20000)))
    assert abs((y == 0).sum() - 20000 * p) <= 5 * np.sqrt(20000 * p * (1 - p)) + 1
    if 0.01 < p < 0.9:
        assert torch.nn.Dropout(p)(torch.ones(9999)).max() == pytest.approx(y.max())


def test_masks_follow_from_seed_layer_and_pass():
    first, second, third = masks_of(network(seed=1), 3)
    assert not (first == second).all() and not (second == third).all()
    again = network(seed=1, dtype="float64")
    np.testing.assert_array_equal(masks_of(again, 3), [first, second, third])
    assert not (masks_of(network(seed=2))[0] == first).all()
    twice = bp.Sequential([bp.Dropout(0.4), bp.Dropout(0.4)], (3, 50), device="host", seed=1)
    assert 0.5 < (masks_of(twice)[0] == 0).mean() < 0.75, "two layers drop different elements"
