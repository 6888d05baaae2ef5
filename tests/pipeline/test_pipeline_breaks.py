"""Pipelined training that is broken off, or meets what is no number: what is left, and what goes on."""

import numpy as np
import pytest
from pipeline_networks import data, mlp

import bppsa_cupy as bp
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings


class Stopping(list):
    """A trace that interrupts training behind the n-th action."""

    def __init__(self, count):
        super().__init__()
        self.count = count

    def append(self, row):
        super().append(row)
        if len(self) == self.count:
            raise KeyboardInterrupt


@pytest.mark.parametrize("schedule", ["stale", "pipedream", "gpipe", "1f1b"])
def test_a_checkpoint_goes_on_after_a_run_that_was_broken_off(schedule, tmp_path):
    def make():
        net = mlp()
        return net, bp.SGD(net.parameters, lr=0.1, momentum=0.9)

    settings = Settings(batch_size=4, epochs=2, checkpoint=tmp_path / "net.h5")
    reference, optimizer = make()
    train(bp.Pipeline(reference, (1, 2), schedule), data(24), optimizer, settings)
    cut, optimizer = make()
    pipeline = bp.Pipeline(cut, (1, 2), schedule, trace=Stopping(70))
    with pytest.raises(KeyboardInterrupt):
        train(pipeline, data(24), optimizer, settings)
    with pytest.raises(bp.BppsaError, match=r"a new bp\.Pipeline"):
        train(pipeline, data(24), optimizer, settings)
    pipeline = bp.Pipeline(cut, (1, 2), schedule)
    train(pipeline, data(24), optimizer, settings, resume=tmp_path / "net.h5")
    np.testing.assert_array_equal(cut.parameters.flat, reference.parameters.flat)
    assert optimizer.steps == 12


def test_stages_stop_when_one_of_them_finds_no_number():
    net, dataset = mlp(), data(60)
    dataset.train.inputs[np.random.default_rng((0, 0)).permutation(60)[9]] = np.nan
    trace = []
    with pytest.raises(bp.NonFiniteError, match="step 4: "):
        train(bp.Pipeline(net, (1, 2), trace=trace), dataset, bp.SGD(net.parameters), Settings(batch_size=3))
    updates = [sum(a.kind == 2 and a.stage == stage for a, *_ in trace) for stage in range(3)]
    assert updates[2] <= 5 and min(updates) >= 3
