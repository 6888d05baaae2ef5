"""Callbacks of training: what they are given, and how they end it."""

import numpy as np
from training_cases import dataset, make, optimizer_of, run  # noqa: F401  dataset is a fixture

from bppsa_cupy.training.checkpoint import load_checkpoint


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
