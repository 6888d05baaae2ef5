"""Callbacks of training: what they are given, and how they end it."""

import numpy as np
import pytest
from training_cases import dataset, make, optimizer_of, run  # noqa: F401  dataset is a fixture

import bppsa_cupy as bp
from bppsa_cupy.training.checkpoint import load_checkpoint
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings


def test_each_row_comes_once_and_in_order(dataset):
    seen = []
    net, history = run(dataset, epochs=3, callbacks=[lambda network, row: seen.append((network, row))])
    assert [row for _, row in seen] == history.rows
    assert all(network is net for network, _ in seen)


def test_at_an_epochs_end_the_network_is_as_its_last_step_left_it(dataset):
    states = []

    def keep(network, row):
        if "test_accuracy" in row:
            states.append((row["step"], network.state_dict()))

    run(dataset, epochs=2, callbacks=[keep])
    assert [step for step, _ in states] == [4, 8]
    for epochs, (_, state) in enumerate(states, 1):
        expected = run(dataset, epochs=epochs)[0].state_dict()
        assert all(np.array_equal(state[name], expected[name]) for name in expected)


def test_true_ends_training_behind_the_epoch(dataset, tmp_path):
    path = tmp_path / "c.h5"
    _, history = run(dataset, epochs=5, checkpoint=path, callbacks=[lambda _, row: row["step"] == 6])
    assert [row["step"] for row in history.rows] == list(range(1, 9))
    assert load_checkpoint(path).step == 8
    resumed, rest = run(dataset, epochs=5, resume=path)
    whole, _ = run(dataset, epochs=5)
    assert rest.rows[0]["step"] == 9
    for name, array in whole.parameters.items():
        assert np.array_equal(array, resumed.parameters[name])


def test_other_values_end_nothing_and_every_callback_is_called(dataset):
    calls = []
    callbacks = [lambda *_: True, lambda *_: calls.append(1), lambda *_: 1]
    _, history = run(dataset, epochs=3, callbacks=callbacks)
    assert len(calls) == len(history.rows) == 4


def test_an_error_goes_through_and_the_last_checkpoint_stays(dataset, tmp_path):
    def fail(_, row):
        if row["step"] == 6:
            raise KeyError("mine")

    path = tmp_path / "c.h5"
    with pytest.raises(KeyError, match="mine"):
        run(dataset, epochs=5, checkpoint=path, callbacks=[fail])
    assert load_checkpoint(path).step == 4


def test_in_a_pipeline(dataset):
    net = make()
    steps = []
    settings = Settings(epochs=3, batch_size=16, callbacks=[lambda _, row: steps.append(row["step"]) or True])
    train(bp.Pipeline(net, (1,)), dataset, optimizer_of(net), settings)
    assert steps == [1, 2, 3, 4]


@pytest.mark.parametrize("callbacks", [[3], "x", 5])
def test_what_cannot_be_called_is_refused(callbacks):
    with pytest.raises(bp.BppsaError, match=r"callbacks.*it takes functions of"):
        Settings(callbacks=callbacks)
