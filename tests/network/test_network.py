"""The network: shapes, passes, parameters, and what it refuses."""

import copy
import pickle

import numpy as np
import pytest
import torch
from network_cases import small

import bppsa_cupy as bp


def test_parameters_are_named_as_pytorchs():
    net = small()
    theirs = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8, 3)
    )
    assert list(net.parameters) == [name for name, _ in theirs.named_parameters()]
    net.load_state_dict(theirs.state_dict())
    x = np.random.default_rng(0).standard_normal((5, 1, 4, 4))
    expected = theirs.double()(torch.tensor(x)).detach()
    np.testing.assert_allclose(net.forward(x), expected, rtol=1e-12)
    for name, array in net.state_dict().items():
        np.testing.assert_array_equal(array, theirs.state_dict()[name])


def test_the_seed_decides_the_parameters():
    first, same, other = small(1), small(1), small(2)
    assert all(np.array_equal(first.parameters[name], same.parameters[name]) for name in first.parameters)
    assert not np.array_equal(first.parameters["0.weight"], other.parameters["0.weight"])
    as_float32 = small(1, "float32")
    assert np.array_equal(as_float32.parameters["0.weight"], first.parameters["0.weight"].astype("float32"))


def test_several_passes_may_be_alive(rng):
    net = small()
    x, other = rng.standard_normal((2, 3, 1, 4, 4))
    y = net.forward(x)
    first = net.last_pass
    gradient = rng.standard_normal(y.shape)
    net.backward(gradient, method="bp")
    expected = net.gradients.to_host()
    saved = y.copy()
    net.forward(other)
    assert net.last_pass is not first and np.array_equal(y, saved)
    net.backward(gradient, method="bp", of=first)
    assert all(np.array_equal(net.gradients[name], expected[name]) for name in expected)


def test_a_pass_that_is_used_again_takes_no_memory(rng):
    net = small()
    y = net.forward(rng.standard_normal((3, 1, 4, 4)))
    allocated = net.device.allocated
    assert net.forward(rng.standard_normal((2, 1, 4, 4)), into=net.last_pass).base is not None
    assert net.device.allocated == allocated
    assert y.shape == (3, 3)


def test_a_stale_pass_is_refused():
    net = small()
    y = net.forward(np.zeros((1, 1, 4, 4)))
    bp.SGD(net.parameters).step(net.gradients)
    with pytest.raises(bp.PassError, match="from version 1 to 2: run"):
        net.backward(np.ones_like(y))


def test_masked_weights_cannot_be_set(rng):
    mask = rng.integers(0, 2, (3, 8)).astype(bool)
    layers = [bp.Flatten(), bp.Linear(8, 3, mask=mask)]
    net = bp.Sequential(layers, (2, 4), dtype="float64", device="host")
    net.use(net.plan(batch_size=2))
    net.parameters["1.weight"][...] = 1
    y = net.forward(np.ones((2, 2, 4)))
    np.testing.assert_array_equal(y - net.parameters["1.bias"], [mask.sum(1)] * 2)
    by_method = [
        net.backward(np.ones_like(y), method, input_gradient=True).copy() for method in ("bp", "linear")
    ]
    np.testing.assert_array_equal(*by_method)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_learn_on_their_own(duplicate, rng):
    net = small().eval()
    twin = duplicate(net)
    assert not twin.training and twin.describe() == net.describe()
    x = rng.standard_normal((2, 1, 4, 4))
    assert np.array_equal(twin.forward(x), net.forward(x))
    before = net.state_dict()
    twin.backward(np.ones((2, 3)), method="bp")
    bp.SGD(twin.parameters, lr=1).step(twin.gradients)
    assert not np.array_equal(twin.parameters["3.bias"], before["3.bias"])
    assert all(np.array_equal(net.parameters[name], before[name]) for name in before)


def test_the_jacobians_records_hold_the_gradient_by_finite_differences(rng):
    net = small()
    x = rng.standard_normal((2, 1, 4, 4))
    y = net.forward(x)
    records = net.transposed_jacobians()
    assert [(r.layer, r.name, r.gradient_norm) for r in records] == [
        (0, "Conv2d", None), (1, "ReLU", None), (3, "Linear", None),
    ]  # fmt: skip
    step = 1e-6
    for sample in range(2):
        product = np.eye(3)
        for record in reversed(records):
            product = record.to_scipy(sample) @ product
        for element in range(16):
            moved = x.copy()
            moved[sample].reshape(-1)[element] += step
            difference = (net.forward(moved)[sample] - y[sample]) / step
            np.testing.assert_allclose(product[element], difference, atol=1e-5)
    net.backward(np.ones_like(net.forward(x)), method="bp")
    assert net.transposed_jacobians()[-1].gradient_norm == pytest.approx(np.sqrt(6))


def test_a_slice_is_a_view_of_the_layers():
    layers = [bp.Conv2d(1, 2, 3), bp.BatchNorm2d(2), bp.Flatten(), bp.Linear(8, 3)]
    net = bp.Sequential(layers, (1, 4, 4), dtype="float64", device="host")
    first, last = net[:2], net[3:]
    x = np.random.default_rng(0).standard_normal((5, 1, 4, 4))
    middle = first.forward(x)
    np.testing.assert_array_equal(last.forward(middle.reshape(5, 8)), net.forward(x))
    assert net.buffers["1.num_batches_tracked"] == 2
    last.backward(np.ones((5, 3)))
    assert net.gradients["3.bias"].tolist() == [5, 5, 5]
    last.parameters["0.bias"] = 7.0
    assert net.parameters["3.bias"].tolist() == [7, 7, 7]
    with pytest.raises(bp.ArgumentError, match="step 2"):
        net[::2]
