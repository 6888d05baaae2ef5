"""Pipelined training that is broken off, or meets what is no number: what is left, and what goes on."""

from dataclasses import replace

import numpy as np
import pytest
from pipeline_networks import data, mlp

import bppsa_cupy as bp
from bppsa_cupy.pipeline import Trace
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings


class Stopping(Trace):
    """Interrupts training behind the n-th action."""

    def __init__(self, count):
        super().__init__()
        self.count = count

    def add(self, *row):
        super().add(*row)
        if len(self.rows) == self.count:
            raise KeyboardInterrupt


def test_micro_batches_that_were_broken_off_are_forgotten():
    cut, whole, settings = mlp(), mlp(), Settings(batch_size=24)
    pipeline = bp.Pipeline(cut, (1,), "gpipe", micro_batches=2, trace=Stopping(6))
    with pytest.raises(KeyboardInterrupt):
        train(pipeline, data(24), bp.SGD(cut.parameters, lr=0.1), settings)
    whole.load_state_dict(cut.state_dict())
    for trained, net in ((pipeline, cut), (whole, whole)):
        train(trained, data(24), bp.SGD(net.parameters, lr=0.1), settings)
    np.testing.assert_allclose(cut.parameters.flat, whole.parameters.flat, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("schedule", ["stale", "pipedream", "gpipe", "1f1b"])
def test_the_steps_that_all_stages_have_made_are_counted(schedule):
    net = mlp()
    optimizer = bp.Adam(net.parameters, lr=0.01)
    trace = Stopping(100)
    with pytest.raises(KeyboardInterrupt):
        train(bp.Pipeline(net, (1, 2), schedule, trace=trace), data(300), optimizer, Settings(batch_size=3))
    by_stage = [sum(a.kind == 2 and a.stage == stage for a, *_ in trace.rows) for stage in range(3)]
    assert optimizer.steps == net.random_state["passes"] == min(by_stage) > 5
    train(net, data(12), optimizer, Settings(batch_size=3))
    train(bp.Pipeline(net, (2,), schedule), data(12), optimizer, Settings(batch_size=3))
    assert optimizer.steps == min(by_stage) + 8


def test_stages_stop_when_one_of_them_finds_no_number():
    net, dataset = mlp(), data(60)
    dataset.train.inputs[np.random.default_rng((0, 0)).permutation(60)[9]] = np.nan
    trace = Trace()
    with pytest.raises(bp.NonFiniteError, match="step 4: "):
        train(bp.Pipeline(net, (1, 2), trace=trace), dataset, bp.SGD(net.parameters), Settings(batch_size=3))
    updates = [sum(a.kind == 2 and a.stage == stage for a, *_ in trace.rows) for stage in range(3)]
    assert updates[2] <= 5 and min(updates) >= 3


def test_predictions_keep_masks_that_are_newer_than_the_velocity():
    losses = []
    for masked in (False, True):
        net, dataset = mlp(), data(24)
        optimizer = bp.SGD(net.parameters, lr=0.1, momentum=0.9)
        train(net, dataset, optimizer, Settings(batch_size=4))
        bp.prune(net, 0.5)
        if masked:
            for array in optimizer.arrays.values():
                net.parameters.apply_masks(array)
        pipeline = bp.Pipeline(net, (1, 2), predict=True)
        losses.append(train(pipeline, dataset, optimizer, Settings(batch_size=4, seed=2)).losses)
    np.testing.assert_array_equal(*losses)


def test_a_batch_of_ignored_labels_is_refused():
    layers = [bp.GRU(2, 3), bp.Linear(3, 2)]
    net = bp.Sequential(layers, (4, 2), dtype="float64", device="host")
    dataset = data(8, (4, 2), 2)
    dataset = replace(dataset, train=replace(dataset.train, labels=np.full((8, 4), -100)))
    with pytest.raises(bp.LabelError, match="every label is ignored"):
        pipeline = bp.Pipeline(net, (1,), "gpipe", micro_batches=2)
        train(pipeline, dataset, bp.SGD(net.parameters), Settings(batch_size=4))


def test_an_error_inside_of_a_cut_block_names_its_place():
    body = [bp.Conv2d(2, 2, 1), bp.ReLU(), bp.Conv2d(2, 2, 1)]
    layers = [bp.Conv2d(1, 2, 3), bp.Residual(body, [bp.BatchNorm2d(2)]), bp.Flatten(), bp.Linear(2, 3)]
    net = bp.Sequential(layers, (1, 3, 3), dtype="float64", device="host")
    with pytest.raises(bp.ShapeError, match=r"layer 1\.shortcut\.0: BatchNorm2d"):
        train(bp.Pipeline(net, (2,)), data(7, (1, 3, 3)), bp.SGD(net.parameters), Settings(batch_size=1))
