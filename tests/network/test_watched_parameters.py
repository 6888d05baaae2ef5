"""Parameters that are watched: a change between a pass and its way back is refused, however it was made."""

import numpy as np
import pytest
import torch

import bppsa_cupy as bp


@pytest.fixture
def net(device):
    made = bp.Sequential([bp.Flatten(), bp.Linear(6, 3), bp.Tanh(), bp.Linear(3, 2)], (2, 3), device=device)
    made.parameters.watched = True
    return made


def forward(net, **options):
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 2, 3)
    return net.forward(net.device.asarray(x), **options)


def add_one(weight):
    weight += 1


def write_a_not_a_number(weight):
    weight[-1, -1] = np.nan


@pytest.mark.parametrize("write", [add_one, write_a_not_a_number, lambda weight: weight[0].fill(7)])
def test_a_change_in_place_is_named(net, write):
    y = forward(net)
    write(net.parameters["3.weight"])
    message = r"^values of 3.weight were changed in place .* run net.forward\(x\) again before "
    with pytest.raises(bp.PassError, match=message + "backward"):
        net.backward(y)
    with pytest.raises(bp.PassError, match=message + "transposed_jacobians"):
        net.transposed_jacobians()
    net.backward(forward(net))


@pytest.mark.parametrize(
    "write",
    [
        lambda weight: np.copyto(weight, 0),
        lambda weight: np.multiply(weight, 2, out=weight),
        lambda weight: weight.flat.__setitem__(0, 5),
        lambda weight: np.asarray(weight).view("u4").__setitem__((0, 0), 1),
        lambda weight: torch.from_numpy(weight).zero_(),
        lambda weight: memoryview(weight).cast("B").cast("f").__setitem__(0, 3.0),
    ],
)
def test_by_whatever_hand(write):
    net = bp.Sequential([bp.Linear(2, 3)], (2,), device="host")
    net.parameters.watched = True
    y = net.forward(np.ones((1, 2), np.float32))
    write(net.parameters["0.weight"])
    with pytest.raises(bp.PassError, match=r"^values of 0.weight were changed"):
        net.backward(y)


def test_every_name_is_told_and_the_gradients_stay(net):
    net.backward(forward(net))
    before = net.gradients.to_host()
    y = forward(net)
    for name in ("1.bias", "3.weight"):
        net.parameters[name][...] = 0
    with pytest.raises(bp.PassError, match=r"^values of 1.bias, 3.weight were"):
        net.backward(y)
    for name, gradient in net.gradients.to_host().items():
        np.testing.assert_array_equal(gradient, before[name])


def test_a_change_that_is_taken_back_is_none(net):
    weight = net.parameters["1.weight"]
    plain = net.backward(forward(net), input_gradient=True).copy()
    y, kept = forward(net), weight[0, 0].copy()
    weight[0, 0] = 9
    weight[0, 0] = kept
    np.testing.assert_array_equal(
        net.device.to_host(net.backward(y, input_gradient=True)), net.device.to_host(plain)
    )


def test_each_pass_has_its_own_values(net):
    y, first = forward(net), net.last_pass
    net.parameters["1.weight"][...] = 0
    forward(net)
    net.backward(y)
    with pytest.raises(bp.PassError, match="weight were"):
        net.backward(y, of=first)
    net.backward(y, of=first, stale=True)


def test_steps_state_dicts_and_masks_are_as_before(net):
    """What changes values between passes, and writes masked ones anew, is no change of a pass."""
    optimizer = bp.Adam(net.parameters, lr=0.1)
    bp.prune(net, 0.5)
    for _ in range(2):
        y = forward(net)
        net.state_dict()
        net.backward(y)
        optimizer.step(net.gradients)
    net.load_state_dict(net.state_dict())
    net.backward(forward(net))


def test_nothing_is_copied_unless_it_is_asked_for(net):
    net.parameters.watched = False
    y = forward(net)
    assert net.last_pass.values is None
    net.parameters.watched = True
    net.backward(y)
    forward(net, into=net.last_pass)
    assert net.last_pass.values.shape == net.parameters.flat.shape
