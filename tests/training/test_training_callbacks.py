"""Callbacks of training: what they are given, and how they end it."""

import numpy as np
from training_cases import dataset, make, optimizer_of, run  # noqa: F401  dataset is a fixture

from bppsa_cupy.training.checkpoint import load_checkpoint


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
