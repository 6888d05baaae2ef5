"""What training is given of another kind is refused by name, and nothing is set then."""

import copy

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.data import Dataset, Split
from bppsa_cupy.training.checkpoint import load_checkpoint, save_checkpoint
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings
from bppsa_cupy.training.state import restore, snapshot


def network(*sizes):
    return bp.Sequential([bp.Linear(*(sizes or (3, 2))), bp.Linear(2, 2)], sizes[:1] or (3,), device="host")


NET = network()
DATA = Dataset("made", (3,), 2, Split(np.ones((4, 3), "float32"), np.array([0, 1, 0, 1]), None), None, None)


def optimizer(net=NET):
    made = bp.SGD(net.parameters, lr=0.1, momentum=0.9, groups=[{"params": "1", "lr": 0.01}])
    net.backward(np.ones_like(net.forward(np.ones((1, *net.input_shape), "float32"))), "bp")
    made.step(net.gradients)
    return made


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "bppsa"}, "method 'bppsa' was asked for: the methods are auto, bp"),
        ({"method": np.ones(2)}, "method array"),
        ({"progress": "no"}, "training got progress='no': it takes True or False"),
        ({"checkpoint": 3}, "training got checkpoint=3: it takes a path"),
        ({"log": "x" * 5000}, "training got log=.*it takes a path .*too long"),
        ({"lr_schedule": 0.1}, "a schedule got its text of float: it takes step:EPOCHS:GAMMA"),
        ({"augment": np.ones(2)}, "the augmentation array"),
        ({"gradient_hook": 1}, "training got gradient_hook=1: it takes a function"),
    ],
)
def test_settings(settings, words):
    with pytest.raises(bp.BppsaError, match=words):
        Settings(**settings)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"trained": 3}, "train got a network of int: it takes a Sequential or a Pipeline"),
        ({"dataset": DATA.train}, "train got dataset of Split: it takes its Dataset"),
        ({"optimizer": NET.parameters}, "train got optimizer of ParameterSet: it takes its Optimizer"),
        ({"settings": {}}, "train got settings of dict: it takes its Settings"),
        ({"resume": 3}, "train got resume=3: it takes a path"),
    ],
)
def test_train(given, words):
    own = {"trained": NET, "dataset": DATA, "optimizer": bp.SGD(NET.parameters), "settings": Settings()}
    with pytest.raises(bp.BppsaError, match=words):
        train(**{**own, **given})


# ---- optimizers ----


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", "x"),
        ("lr", -1.0),
        ("lr", np.nan),
        ("lr", 10**400),
        ("momentum", np.ones(2)),
        ("weight_decay", None),
        ("nesterov", 3),
    ],
)
def test_a_hyper_parameter_that_is_set_between_steps_is_checked(name, value):
    made = optimizer()
    before, state = NET.parameters.flat.copy(), made.arrays["velocity"].copy()
    setattr(made, name, value)
    with pytest.raises(bp.BppsaError, match=f"SGD got {name}="):
        made.step(NET.gradients)
    np.testing.assert_array_equal(NET.parameters.flat, before)
    np.testing.assert_array_equal(made.arrays["velocity"], state)


@pytest.mark.parametrize("factor", [np.inf, np.nan, -1.0, "x", None])
def test_the_factor_of_the_rate_is_checked(factor):
    made = optimizer()
    made.lr_factor = factor
    with pytest.raises(bp.BppsaError, match=r"SGD got lr_factor=.*: it takes a finite number of at least 0"):
        made.step(NET.gradients)


def test_a_factor_of_0_holds_the_parameters():
    made = optimizer()
    before, made.lr_factor = NET.parameters.flat.copy(), 0
    made.step(NET.gradients)
    np.testing.assert_array_equal(NET.parameters.flat, before)
    assert made.steps == 2


def test_gradients_of_other_shapes_are_refused():
    """Of a network whose parameters take as much room in all."""
    other = network(5, 2)
    assert other.gradients.flat.shape == NET.gradients.flat.shape
    with pytest.raises(bp.BppsaError, match="by the same names and shapes"):
        optimizer().step(other.gradients)


@pytest.mark.parametrize("part", [slice(1, 16), slice(0, 17), slice(0, None), slice(0, 16, 2), slice(16, 0)])
def test_parts_begin_and_end_where_arrays_do(part):
    with pytest.raises(bp.BppsaError, match=r"SGD got part=.*: it takes a slice from the start of one array"):
        optimizer().step(NET.gradients, part)


@pytest.mark.parametrize("ask", [bp.SGD.fetch_blocked, lambda sgd, part: sgd.step(NET.gradients, part)])
def test_a_part_is_a_slice(ask):
    with pytest.raises(bp.BppsaError, match="SGD got part of int: it takes a slice of `flat`, or None"):
        ask(optimizer(), 3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.clear(), "lacks its optimizer's name, hyperparameters, steps, arrays"),
        (lambda s: s.update(hyperparameters=3), "lacks its optimizer's hyperparameters"),
        (lambda s: s.update(steps=-1), "the checkpoint got steps=-1"),
        (lambda s: s.update(steps="x"), "the checkpoint got steps='x'"),
        (lambda s: s["hyperparameters"].update(lr="x"), "cannot be continued: SGD got lr='x'"),
        (lambda s: s.update(groups=3), "cannot be continued: an optimizer got groups of int"),
        (lambda s: s.update(groups=[{"params": "9"}]), "cannot be continued: group 0 has the parameters '9'"),
        (lambda s: s.update(groups=[{"params": "1", "lr": -1}]), "cannot be continued: SGD got lr=-1"),
        (lambda s: s["arrays"].update(velocity=3.5), r"velocity holds float64 of shape \(\), the network"),
        (lambda s: s["arrays"].update(velocity="x"), "the checkpoint got velocity of <U1"),
        (lambda s: s["arrays"].update(velocity=s["arrays"]["velocity"] * 1j), "velocity holds complex"),
    ],
)
def test_a_state_that_does_not_fit_sets_nothing(change, words):
    made = optimizer()
    state, before = made.state_dict(), made.state_dict()
    change(state)
    with pytest.raises(bp.CheckpointError, match=words):
        made.load_state_dict(state)
    np.testing.assert_equal(made.state_dict(), before)


# ---- checkpoints ----


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda c: c.random_state.update(network=3),
            "random numbers follow from 3, the network's from its key",
        ),
        (lambda c: c.random_state["network"].update(key=-1), "the checkpoint got key=-1"),
        (lambda c: c.random_state["network"].update(other=1), "follow from .*other"),
        (lambda c: c.network.update(layers=3), "layers 3 in the checkpoint"),
        (lambda c: c.optimizer.update(groups=[{"params": "9"}]), "cannot be continued"),
    ],
)
def test_a_checkpoint_that_does_not_fit_sets_nothing(change, words):
    net = network()
    made, settings = optimizer(net), Settings(batch_size=2)
    checkpoint = copy.deepcopy(snapshot(net, made, settings, DATA, 1, 2))
    change(checkpoint)
    net.parameters["0.weight"][...] = 7
    before = net.state_dict(), made.state_dict(), dict(net.random_state)
    with pytest.raises(bp.CheckpointError, match=words):
        restore(net, made, checkpoint, settings, DATA)
    np.testing.assert_equal((net.state_dict(), made.state_dict(), dict(net.random_state)), before)


def test_a_checkpoint_that_does_not_fit_is_named(tmp_path):
    save_checkpoint(tmp_path / "c.h5", snapshot(NET, optimizer(), Settings(seed=1), DATA, 1, 2))
    with pytest.raises(
        bp.CheckpointError, match=r"c\.h5: the checkpoint was trained with seed 1 and 0 is asked"
    ):
        train(NET, DATA, bp.SGD(NET.parameters), Settings(), tmp_path / "c.h5")


def test_steps_of_a_checkpoint_count_from_0(tmp_path):
    net = network()
    state = snapshot(net, optimizer(net), Settings(batch_size=2), DATA, -2, 2)
    save_checkpoint(tmp_path / "c.h5", state)
    with pytest.raises(bp.CheckpointError, match=r"c\.h5 got epoch=-1: it takes an integer of at least 0"):
        load_checkpoint(tmp_path / "c.h5")
