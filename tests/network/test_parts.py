"""net[:3] is a network of consecutive layers on the arrays of the whole."""

import copy
import pickle

import numpy as np
import pytest

import bppsa_cupy as bp


def net(**options):
    layers = [
        bp.Conv2d(1, 2, 3),
        bp.BatchNorm2d(2),
        bp.ReLU(),
        bp.Flatten(),
        bp.Linear(8, 3),
        bp.Linear(3, 2),
    ]
    options = {"dtype": "float64", "device": "host", **options}
    return bp.Sequential(layers, (1, 4, 4), **options)


X = np.random.default_rng(0).standard_normal((5, 1, 4, 4))


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 6])
def test_two_parts_one_behind_the_other_are_the_whole(cut):
    whole = net()
    head, tail = whole[:cut], whole[cut:]
    assert isinstance(head, bp.Sequential) and len(head) == cut and len(tail) == 6 - cut
    assert (head.input_shape, head.output_shape) == ((1, 4, 4), tail.input_shape)
    h = head(X)
    y = tail(h)
    fresh = net()
    assert np.array_equal(y, fresh(X))
    g = np.random.default_rng(1).standard_normal(y.shape)
    by_h = tail.backward(g, input_gradient=True)
    by_x = head.backward(by_h, input_gradient=True)
    assert np.allclose(by_x, fresh.backward(g, input_gradient=True), rtol=1e-12, atol=1e-14)
    for name, gradient in fresh.gradients.items():  # the parts have written into the whole's
        assert np.allclose(whole.gradients[name], gradient, rtol=1e-12, atol=1e-14)


def test_arrays_are_shared():
    whole = net()
    part = whole[1:5]
    assert list(part.parameters) == ["0.weight", "0.bias", "3.weight", "3.bias"]
    for own, theirs in (("0.weight", "1.weight"), ("3.bias", "4.bias")):
        assert np.shares_memory(part.parameters[own], whole.parameters[theirs])
        assert np.shares_memory(part.gradients[own], whole.gradients[theirs])
    assert np.shares_memory(part.parameters.flat, whole.parameters.flat)
    part(np.zeros((2, 2, 2, 2)))  # running statistics of the whole
    assert np.array_equal(whole.buffers["1.num_batches_tracked"], 1)
    part.parameters["3.bias"][...] = 7
    assert (whole.parameters["4.bias"] == 7).all() and (part.state_dict()["3.bias"] == 7).all()


def test_an_optimizer_of_a_part_trains_it_alone():
    whole, other = net(), net()
    for network, part in ((whole, whole[4:]), (other, other)):
        optimizer = bp.Adam(part.parameters, lr=0.1)
        network(X)
        network.backward(np.ones((5, 2)))
        optimizer.step(part.gradients)
    for name in whole.parameters:
        changed = name.startswith(("4.", "5."))
        assert np.array_equal(whole.parameters[name], (other if changed else net()).parameters[name])


def test_masks_follow_the_whole():
    whole = net()
    part = whole[3:]
    bp.prune(whole, 0.5)
    assert sorted(part.masks) == ["1.weight", "2.weight"]
    assert np.array_equal(part.masks["1.weight"], whole.masks["4.weight"])
    assert part.jacobians[1].pattern == whole.jacobians[4].pattern
    whole.set_masks({})
    assert not part.masks and not part.parameters.masks


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda part: pickle.loads(pickle.dumps(part))])
def test_a_copy_is_a_network_of_its_own(copied):
    whole = net()
    part = copied(whole[4:])
    part.parameters["0.bias"][...] = 9
    assert not (whole.parameters["4.bias"] == 9).any() and next(iter(part.parameters)) == "0.weight"
