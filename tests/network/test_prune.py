"""Pruning by magnitude, and masks that hold in training, plans and checkpoints."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bppsa_cupy as bp


def small(dtype="float64", seed=0, **options):
    """Two convolutions and a linear layer between layers without weights."""
    layers = [
        bp.Conv2d(2, 4, 3, padding=1), bp.ReLU(), bp.MaxPool2d(2), bp.Conv2d(4, 4, 3, bias=False), bp.ReLU(),
        bp.Flatten(), bp.Linear(16, 3),
    ]  # fmt: skip
    return bp.Sequential(layers, (2, 8, 8), seed=seed, dtype=dtype, device="host", **options)


def step(net, optimizer, method="bp", seed=1):
    rng = np.random.default_rng(seed)
    y = net.forward(rng.standard_normal((4, *net.input_shape)).astype(net.dtype))
    _, gradient = bp.cross_entropy(y, np.arange(4) % 3)
    net.backward(gradient, method=method)
    optimizer.step(net.gradients)
    return gradient


def reference(weights, fraction):
    """The kept ones by a sort of Python's, which is stable: of equal magnitudes the first ones go."""
    flat = weights.ravel()
    order = sorted(range(flat.size), key=lambda place: abs(float(np.float32(flat[place]))))
    mask = np.ones(flat.size, bool)
    mask[order[: round(fraction * flat.size)]] = False
    return mask.reshape(weights.shape)


@given(st.floats(0, 1), st.integers(0, 5))
def test_a_layer_loses_its_smallest_weights(fraction, seed):
    net = small(seed=seed)
    before = net.state_dict()
    masks = bp.prune(net, fraction)
    for name in ("0.weight", "3.weight", "6.weight"):
        mask = reference(before[name], fraction)
        np.testing.assert_array_equal(masks.get(name, np.ones_like(mask)), mask)
        np.testing.assert_array_equal(net.parameters[name], before[name] * mask)
    for name in ("0.bias", "6.bias"):
        np.testing.assert_array_equal(net.parameters[name], before[name])


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_both_dtypes_get_the_same_masks(scope):
    single, double = small("float32"), small("float64")
    bp.prune(single, 0.8, scope)
    bp.prune(double, 0.8, scope)
    assert single.describe() == double.describe()


@given(st.lists(st.floats(0, 1), min_size=2, max_size=3), st.sampled_from(["layer", "global"]))
def test_pruning_again_only_adds_zeros(fractions, scope):
    net = small()
    zeros = False
    for fraction in fractions:
        bp.prune(net, fraction, scope)
        now = np.concatenate([array.ravel() for array in net.state_dict().values()]) == 0
        assert (now >= zeros).all()
        zeros = now
    sizes = [net.parameters[f"{index}.weight"].size for index in (0, 3, 6)]
    masked = sum(mask.size - int(mask.sum()) for mask in net.masks.values())
    parts = sizes if scope == "layer" else [sum(sizes)]
    assert masked == sum(round(max(fractions) * size) for size in parts)


def test_nothing_and_everything():
    net = small()
    fingerprint = net.describe()
    assert bp.prune(net, 0) == {} and net.describe() == fingerprint
    bp.prune(net, 1.0)
    assert not any(net.parameters[name].any() for name in net.masks) and len(net.masks) == 3
    net.use(net.plan(batch_size=4))
    gradient = step(net, bp.SGD(net.parameters, lr=0.1), "blelloch")
    np.testing.assert_array_equal(net.gradients["6.bias"], np.asarray(gradient).sum(0))
    assert not net.gradients["0.weight"].any() and not net.gradients["0.bias"].any()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: bp.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
        lambda p: bp.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        bp.Adam,
    ],
)
@pytest.mark.parametrize("loaded", [False, True])
def test_weights_stay_0_through_a_step_with_older_momentum(make, loaded):
    """As they are right after the step; also where the momentum comes of a state that is loaded."""
    net = small()
    optimizer = make(net.parameters)
    step(net, optimizer)
    state = optimizer.state_dict()
    for fraction in (0.5, 0.7):
        masks = bp.prune(net, fraction)
        if loaded:
            optimizer.load_state_dict(state)
        for _ in range(2):
            step(net, optimizer)
            for name, mask in masks.items():
                assert not net.parameters[name][~mask].any() and net.parameters[name][mask].all()
