"""Pruning by magnitude, and masks that hold in training, plans and checkpoints."""

import copy
import math

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
    kept = np.ones(flat.size, bool)
    kept[order[: round(fraction * flat.size)]] = False
    return kept.reshape(weights.shape)


@given(st.floats(0, 1), st.integers(0, 5))
def test_a_layer_loses_its_smallest_weights(fraction, seed):
    net = small(seed=seed)
    before = net.state_dict()
    masks = bp.prune(net, fraction)
    for name in ("0.weight", "3.weight", "6.weight"):
        kept = reference(before[name], fraction)
        np.testing.assert_array_equal(masks.get(name, np.ones_like(kept)), kept)
        np.testing.assert_array_equal(net.parameters[name], before[name] * kept)
    for name in ("0.bias", "6.bias"):
        np.testing.assert_array_equal(net.parameters[name], before[name])


@given(st.floats(0, 1), st.integers(0, 5))
def test_one_threshold_over_all_layers(fraction, seed):
    net = small(seed=seed)
    names = ("0.weight", "3.weight", "6.weight")
    before = np.concatenate([net.parameters[name].ravel() for name in names])
    bp.prune(net, fraction, scope="global")
    kept = np.concatenate([net.parameters[name].ravel() for name in names]) != 0
    np.testing.assert_array_equal(kept, reference(before, fraction))


@given(st.lists(st.sampled_from([0.0, 0.5, -0.5, 1.0]), min_size=6, max_size=6), st.floats(0, 1))
def test_ties_go_by_their_place(values, fraction):
    net = bp.Sequential([bp.Linear(3, 2)], (3,), device="host")
    weights = np.reshape(values, (2, 3))
    net.parameters["0.weight"][...] = weights
    masks = bp.prune(net, fraction)
    kept = reference(weights, fraction)
    np.testing.assert_array_equal(masks.get("0.weight", np.ones_like(kept)), kept)


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_both_dtypes_get_the_same_masks(scope):
    single, double = small("float32"), small("float64")
    bp.prune(single, 0.8, scope)
    bp.prune(double, 0.8, scope)
    assert single.fingerprint == double.fingerprint


@given(st.lists(st.floats(0, 1), min_size=2, max_size=3), st.sampled_from(["layer", "global"]))
def test_pruning_again_only_adds_zeros(fractions, scope):
    net = small()
    zeros = np.zeros(net.parameters.flat.size, bool)
    for fraction in fractions:
        bp.prune(net, fraction, scope)
        now = np.array(net.parameters.flat) == 0
        assert (now >= zeros).all()
        zeros = now
    sizes = [net.parameters[f"{index}.weight"].size for index in (0, 3, 6)]
    masked = sum(mask.size - int(mask.sum()) for mask in net.masks.values())
    parts = sizes if scope == "layer" else [sum(sizes)]
    assert masked == sum(round(max(fractions) * size) for size in parts)


def test_nothing_and_everything():
    net = small()
    fingerprint = net.fingerprint
    assert bp.prune(net, 0) == {} and net.fingerprint == fingerprint
    bp.prune(net, 1.0)
    assert not any(net.parameters[name].any() for name in net.masks) and len(net.masks) == 3
    net.use(net.plan(batch_size=4))
    gradient = step(net, bp.SGD(net.parameters, lr=0.1), "blelloch")
    np.testing.assert_array_equal(net.gradients["6.bias"], np.asarray(gradient).sum(0))
    assert not net.gradients["0.weight"].any() and not net.gradients["0.bias"].any()


@pytest.mark.parametrize("fraction", [-0.1, 1.1, math.nan, "much", "0.5", True, None])
def test_other_fractions_are_named(fraction):
    net = small()
    with pytest.raises(bp.PruneError, match=r"fraction=.*takes a number from 0 to 1"):
        bp.prune(net, fraction)
    assert net.masks == {}


def test_what_cannot_be_pruned_is_named():
    net = small()
    with pytest.raises(bp.PruneError, match="scope='all': it takes 'layer' or 'global'"):
        bp.prune(net, 0.5, "all")
    net.parameters["3.weight"][0, 0, 0, 0] = np.inf
    with pytest.raises(bp.PruneError, match=r"3\.weight holds NaN or infinity"):
        bp.prune(net, 0.5)
    assert net.masks == {}
    with pytest.raises(bp.PruneError, match="no Conv2d or Linear"):
        bp.prune(bp.Sequential([bp.ReLU()], (3,), device="host"), 0.5)


def test_masks_that_do_not_fit_are_named():
    net = small()
    bp.prune(net, 0.5)
    before = net.fingerprint
    with pytest.raises(bp.ShapeError, match=r"mask of '0.bias': it takes masks of 0.weight, 3.weight"):
        net.set_masks({"0.bias": np.ones(4)})
    with pytest.raises(bp.ShapeError, match=r"mask of shape \(3,\): its weight has shape \(3, 16\)"):
        net.set_masks({"6.weight": np.ones(3)})
    assert net.fingerprint == before
    net.set_masks({})
    assert net.masks == {}


@pytest.mark.parametrize("make", [lambda p: bp.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1), bp.Adam])
@pytest.mark.parametrize("method", ["bp", "blelloch"])
def test_masks_hold_in_training(make, method):
    """Also where the optimizer has a velocity from before."""
    net = small()
    optimizer = make(net.parameters)
    step(net, optimizer)
    masks = bp.prune(net, 0.7)
    net.use(net.plan(batch_size=4))
    for seed in range(3):
        before = net.state_dict()
        step(net, optimizer, method, seed)
        for name, array in net.state_dict().items():
            kept = masks.get(name, np.ones(array.shape, bool))
            assert not array[~kept].any() and not net.gradients[name][~kept].any()
            assert (array != before[name])[kept].mean() > 0.5


def test_a_plan_of_other_masks_is_refused_when_it_is_used():
    net = small()
    plan = net.plan(batch_size=4)
    net.use(plan)
    step(net, bp.SGD(net.parameters, lr=0.1), "blelloch")
    bp.prune(net, 0.5)
    for method in ("auto", "blelloch"):
        with pytest.raises(bp.PlanMismatchError, match=r"weight_mask None in the plan, \w{8}… in"):
            step(net, bp.SGD(net.parameters, lr=0.1), method)
    with pytest.raises(bp.PlanMismatchError, match="weight_mask"):
        net.use(plan)
    step(net, bp.SGD(net.parameters, lr=0.1), "bp")
    net.set_masks({})
    step(net, bp.SGD(net.parameters, lr=0.1), "blelloch")


def test_passes_older_than_the_masks():
    net = small()
    x = np.ones((2, 2, 8, 8))
    gradient = np.ones_like(net.forward(x))
    old = net.last_pass
    bp.prune(net, 0.9)
    with pytest.raises(bp.PassError, match=r"run net.forward\(x\) again"):
        net.backward(gradient)
    net.forward(x, into=old)
    net.backward(gradient)
    masks = net.masks
    assert all(not net.gradients[name][~mask].any() for name, mask in masks.items())


def test_patterns_and_copies_have_the_masks():
    net = small()
    layers = net.layers
    dense = [record.nnz for record in (j.pattern for j in net.jacobians if j is not None)]
    bp.prune(net, 0.8)
    pruned = [record.nnz for record in (j.pattern for j in net.jacobians if j is not None)]
    assert [after < before for before, after in zip(dense, pruned, strict=True)] == [
        True, False, False, True, False, True,
    ]  # fmt: skip
    assert copy.deepcopy(net).fingerprint == net.fingerprint
    assert all(layer.masks() == {} for layer in layers), "layers may be another network's too"


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
