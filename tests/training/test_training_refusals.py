"""Arguments that losses, optimizers and training refuse: the error's class, and the two sides it names."""

import copy

import numpy as np
import pytest
from refusals import assert_refused

import bppsa_cupy as bp
from bppsa_cupy.data import Dataset, Split
from bppsa_cupy.training.checkpoint import network_of, restore, snapshot
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings


def network(*sizes, seed=0):
    layers = [bp.Linear(*(sizes or (3, 2))), bp.Linear(2, 2)]
    return bp.Sequential(layers, sizes[:1] or (3,), seed=seed, device="host")


NET = network()
DATA = Dataset("made", (3,), 2, Split(np.ones((4, 3), "float32"), np.array([0, 1, 0, 1]), None), None, None)
OTHER = Dataset("made", (3,), 4, Split(np.ones((4, 3), "float32"), np.array([0, 1, 0, 1]), None), None, None)


def optimizer(net=NET):
    made = bp.SGD(net.parameters, lr=0.1, momentum=0.9)
    net.backward(np.ones_like(net.forward(np.ones((1, *net.input_shape), "float32"))), "bp")
    made.step(net.gradients)
    return made


def stepped(**changes):
    made = optimizer()
    for name, value in changes.items():
        setattr(made, name, value)
    made.step(NET.gradients)


def fit(trained=NET, dataset=DATA, made=None, settings=None, resume=None):
    train(trained, dataset, bp.SGD(NET.parameters) if made is None else made, settings or Settings(), resume)


def loss(labels, shape=(2, 3), **options):
    bp.cross_entropy(np.zeros(shape), labels, **options)


def sparse(trained, sparsity, **options):
    net = getattr(trained, "network", trained)
    fit(trained, DATA, bp.SGD(net.parameters), Settings(sparsity=sparsity, **options))


GRADUAL = bp.GradualPruning(0.9, 9)
REFUSED = [
    (lambda: loss([-1, 0]), bp.LabelError, "label -1 of sample 0", "0 to 2"),
    (lambda: loss([0]), bp.ShapeError, "(1,)", "(2,)"),
    (lambda: loss([0.0, 1.5]), bp.ShapeError, "float64", "astype(int)"),
    (lambda: loss(np.ma.masked_array([0, 1], [1, 0])), bp.ShapeError, "masked", "array"),
    (lambda: loss([[-100] * 2] * 2, (2, 2, 3)), bp.LabelError, "ignored", "at least one"),
    (lambda: loss([0, 1], lengths=[1, 1]), bp.ArgumentError, "lengths", "one label per sample"),
    (lambda: loss([0, 1], label_smoothing=1.1), bp.ArgumentError, "1.1", "from 0 to 1"),
    (lambda: loss([0], (1, 0)), bp.ShapeError, "(1, 0)", "(B, classes)"),
    (lambda: bp.mse_loss(np.zeros((2, 3)), np.zeros((2, 2))), bp.ShapeError, "(2, 2)", "(2, 3)"),
    (lambda: bp.clip_grad_norm(NET.gradients, 0), bp.ArgumentError, "max_norm=0", "above 0"),
    (lambda: bp.SGD({}), bp.ArgumentError, "dict", "net.parameters"),
    (lambda: bp.SGD(NET.parameters, nesterov=True), bp.ArgumentError, "momentum=0.0", "above 0"),
    (lambda: bp.Adam(NET.parameters, lr=-1), bp.ArgumentError, "lr=-1", "at least 0"),
    (lambda: bp.Adam(NET.parameters, betas=(1.0, 0.9)), bp.ArgumentError, "betas=", "below 1"),
    (lambda: stepped(lr="x"), bp.ArgumentError, "lr='x'", "at least 0"),
    (lambda: stepped(lr_factor=np.nan), bp.ArgumentError, "lr_factor=nan", "at least 0"),
    (lambda: optimizer().step(network(5, 2).gradients), bp.ArgumentError, "gradients", "same network"),
    (lambda: Settings(epochs=1.5), bp.ArgumentError, "epochs=1.5", "integer"),
    (lambda: Settings(method="bppsa"), bp.ArgumentError, "'bppsa'", "'auto', 'bp'"),
    (lambda: Settings(lr_schedule="linear:3"), bp.ArgumentError, "'linear:3'", "step:EPOCHS:GAMMA"),
    (lambda: Settings(lr_schedule="cosine,cosine"), bp.ArgumentError, "cosine twice", "only once"),
    (lambda: fit(settings=Settings(lr_schedule="cosine,warmup:12")), bp.ArgumentError, "12 steps", "warm-up"),
    (lambda: bp.GradualPruning(1.2, 10), bp.PruneError, "to=1.2", "from 0 to 1"),
    (lambda: sparse(network(), GRADUAL, method="linear"), bp.PruneError, "'linear'", "'bp' or 'auto'"),
    (lambda: sparse(bp.Pipeline(network(), [1]), GRADUAL), bp.PruneError, "Pipeline", "Sequential"),
    (lambda: sparse(bp.accumulate(network(), 4), GRADUAL), bp.PruneError, "BatchSequential", "Sequential"),
    (lambda: sparse(network(), bp.RigL(10)), bp.PruneError, "RigL", "bp.prune(net, 0.95)"),
    (lambda: fit(dataset=OTHER), bp.DataError, "4 classes", "(2,)"),
    (lambda: fit(network(5, 2)), bp.DataError, "(3,)", "(5,)"),
    (lambda: fit(network()), bp.ArgumentError, "another network", "network.parameters"),
]  # fmt: skip


@pytest.mark.parametrize("call, error, value, fix", REFUSED)
def test_refused_arguments(call, error, value, fix):
    assert_refused(call, error, value, fix)


#: A change of a checkpoint, and what the error names.
CHANGES = [
    (lambda c: c.optimizer.clear(), "None"),
    (lambda c: c.optimizer.update(name="Adam"), "Adam"),
    (lambda c: c.optimizer["hyperparameters"].update(lr=0.5), "lr=0.5"),
    (lambda c: c.optimizer["arrays"].clear(), "velocity"),
    (lambda c: c.random_state.update(seed=5), "seed=5"),
    (lambda c: c.data.update(name="other", digest="0"), "other"),
    (lambda c: c.recipe.update(lr_schedule="half:3"), "lr_schedule"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_a_checkpoint_that_does_not_fit_sets_nothing(change, words):
    net = network()
    made, settings = optimizer(net), Settings(batch_size=2)
    checkpoint = copy.deepcopy(snapshot(net, made, settings, DATA, 1, 2))
    change(checkpoint)
    before = net.state_dict(), made.state_dict(), dict(net.random_state)
    assert_refused(lambda: restore(net, made, checkpoint, settings, DATA), bp.CheckpointError, words)
    np.testing.assert_equal((net.state_dict(), made.state_dict(), dict(net.random_state)), before)


@pytest.mark.parametrize("change", [
    lambda layers: layers[0].update(type="Own"), lambda layers: layers[0].pop("in_features"),
    lambda layers: layers[0].update(in_features=9), lambda layers: layers.append(3),
    lambda layers: layers.pop(),
])  # fmt: skip
def test_a_description_of_no_network_is_refused(change):
    checkpoint = copy.deepcopy(snapshot(NET, optimizer(), Settings(), DATA, 1, 2))
    change(checkpoint.network["layers"])
    with pytest.raises(bp.CheckpointError):
        network_of(checkpoint, "host")
