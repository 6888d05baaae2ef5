"""Convolutions and linear layers by the list of the weights that a mask keeps, against
PyTorch."""

from types import SimpleNamespace

import numba
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tolerances import assert_close

import bppsa_cupy as bp
from bppsa_cupy.devices import get_device
from bppsa_cupy.layers.kept_weights import KeptWeights

KEEPS = ("some", "few", "one", "all", "none", "empty rows", "channels gone")


def mask_of(rng, keeps, shape):
    share = {"some": 0.3, "few": 0.05, "all": 1.0, "none": 0.0}.get(keeps, 0.5)
    mask = rng.random(shape) < share
    if keeps == "one":
        mask = np.zeros(shape, bool)
        mask[tuple(rng.integers(0, size) for size in shape)] = True
    elif keeps == "empty rows":
        mask[::2] = False
    elif keeps == "channels gone":
        mask[:, rng.integers(0, shape[1]) :] = False
    return mask


def run(layer, shape, x, weight, bias, gradient, device="host"):
    """Output, and gradients by input, kept weights and bias, of kernels on poisoned buffers."""
    kept, found = KeptWeights(layer.geometry(shape), layer.mask), get_device(device)
    buffers = {}
    ctx = SimpleNamespace(
        device=found, parameters={"weight": weight, "bias": bias},
        buffer=lambda name, shape: buffers.setdefault(name, np.full(shape, np.nan, x.dtype)),
    )  # fmt: skip
    y, dx, dw, db = (
        np.full(s, np.nan, x.dtype) for s in (gradient.shape, x.shape, kept.index.size, bias.size)
    )
    kept.go(ctx, x, y, "forward")
    kept.go(ctx, gradient, dx, "back")
    kept.weight_gradient(ctx, x, gradient, dw, db)
    return y, dx, dw, db


def draw(rng, layer, shape, batch, dtype):
    """Input, weight, bias and output gradient."""
    shapes = (batch, *shape), layer.weight_shape, layer.weight_shape[:1], (batch, *layer.output_shape(shape))
    return [rng.standard_normal(one).astype(dtype) for one in shapes]


PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))


@settings(deadline=None)
@given(
    st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 3)), st.integers(1, 33),
    st.tuples(st.integers(1, 19), st.integers(1, 19)), PAIRS, PAIRS, PAIRS, PAIRS,
    st.sampled_from(KEEPS), st.integers(0, 9),
)  # fmt: skip
@example((64, 64, 1), 16, (4, 4), (3, 3), (1, 1), (1, 1), (1, 1), "some", 0)
@example((8, 70, 1), 64, (1, 1), (1, 1), (1, 1), (0, 0), (1, 1), "some", 0)
@example((4, 3, 1), 16, (32, 17), (3, 3), (1, 1), (1, 1), (1, 1), "some", 0)
@example((2, 2, 1), 17, (3, 2), (2, 2), (3, 3), (3, 3), (1, 1), "some", 0)
def test_every_geometry_and_mask_agrees_with_pytorch(
    dtype, channels, batch, size, kernel, stride, padding, dilation, keeps, seed
):
    before, after, groups = channels
    rng, shape = np.random.default_rng(seed), (before * groups, *size)
    padding = tuple(p + d * (k - 1) // 2 for p, d, k in zip(padding, dilation, kernel, strict=True))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    layer = bp.Conv2d(before * groups, after * groups, kernel, **options)
    layer = layer.with_masks({"weight": mask_of(rng, keeps, layer.weight_shape)})
    x, weight, bias, gradient = draw(rng, layer, shape, batch, dtype)
    found = run(layer, shape, x, weight, bias, gradient)
    taken = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in (x, weight * layer.mask, bias)]
    theirs = torch.nn.functional.conv2d(*taken, **options)
    theirs.backward(torch.tensor(gradient.astype(np.float64)))
    dx, dw, db = (one.grad.numpy() for one in taken)
    terms, positions = np.prod(kernel), gradient[:, 0].size
    for what, ours, wanted, count in (
        ("y", found[0], theirs.detach().numpy(), before * terms), ("dx", found[1], dx, after * terms),
        ("dw", found[2], dw[layer.mask], positions), ("db", found[3], db, positions),
    ):  # fmt: skip
        assert_close(ours, wanted, count, what=what)


@pytest.mark.parametrize(
    "geometry", [(24, 40, 3, (9, 7), 1), (16, 8, 5, (12, 12), 2), (70, 50, 1, (1, 1), 1)]
)
def test_a_sample_has_the_same_bits_alone_and_among_others_on_any_threads(geometry, dtype, rng):
    before, after, kernel, size, stride = geometry
    layer = bp.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2)
    layer = layer.with_masks({"weight": mask_of(rng, "some", layer.weight_shape)})
    shape = (before, *size)
    x, weight, bias, gradient = draw(rng, layer, shape, 37, dtype)
    whole = run(layer, shape, x, weight, bias, gradient)
    threads = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        for one, other in zip(run(layer, shape, x, weight, bias, gradient), whole, strict=True):
            np.testing.assert_array_equal(one, other)
    finally:
        numba.set_num_threads(threads)
    for first, end in ((0, 1), (36, 37), (3, 12), (0, 16)):
        some = slice(first, end)
        y, dx, _, _ = run(layer, shape, x[some].copy(), weight, bias, gradient[some].copy())
        np.testing.assert_array_equal(y, whole[0][some])
        np.testing.assert_array_equal(dx, whole[1][some])


@pytest.mark.parametrize("share", [0.05, 0.7])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_masked_weight_is_absent_for_nan_and_infinity(share, bad, rng):
    """Of a channel that nothing keeps, nothing is seen, and nothing reaches one, by either way."""
    layers = [bp.Conv2d(6, 8, 3, padding=1), bp.Flatten(), bp.Linear(8 * 25, 7)]
    net = bp.Sequential(layers, (6, 5, 5), dtype="float64", device="host")
    masks = {name: rng.random(net.parameters[name].shape) < share for name in ("0.weight", "2.weight")}
    masks["0.weight"][:, 2], masks["2.weight"][3] = False, False
    net.set_masks(masks)
    assert net.by_kept_weights == (("0", "2") if share < 0.1 else ())
    x, gradient = rng.standard_normal((5, 6, 5, 5)), rng.standard_normal((5, 7))

    def passes():
        y = np.array(net.forward(x))
        dx = np.array(net.backward(gradient, method="bp", input_gradient=True))
        return y, dx, net.gradients.to_host()

    y, dx, gradients = passes()
    x[1, 2, 3, 3], gradient[2, 3] = bad, bad
    net.parameters["0.weight"][0, 2] = bad
    y_bad, dx_bad, gradients_bad = passes()
    assert_close(y_bad, y, 600)
    assert_close(dx_bad, dx, 600)
    for name in ("0.weight", "0.bias", "2.weight"):
        assert_close(gradients_bad[name], gradients[name], 600)
    if share > 0.1:  # samples that go by the list after all do not change others' bits
        np.testing.assert_array_equal(y_bad[[0, 2, 3, 4]], y[[0, 2, 3, 4]])
        np.testing.assert_array_equal(dx_bad[[0, 1, 3, 4]], dx[[0, 1, 3, 4]])
    assert np.isfinite(net.state_dict()["0.weight"]).all()
