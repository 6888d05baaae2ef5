"""Training: curves, resuming, logs, checkpoints, and what stops it."""

import json

import numpy as np
import pytest
from training_cases import dataset, make, optimizer_of, run_training, torch_batches  # noqa: F401  dataset is a fixture

import bppsa_cupy as bp
from bppsa_cupy.training.loop import evaluate


def test_the_loss_falls_and_the_test_set_is_evaluated_every_epoch(dataset):
    net, history = run_training(dataset, epochs=15)
    assert len(history.rows) == 15 * 4
    assert [row["step"] for row in history.rows] == list(range(1, 61))
    assert np.mean(history.losses[-4:]) < 0.5 * np.mean(history.losses[:4])
    evaluations = history.evaluations()
    assert [row["step"] for row in evaluations] == list(range(4, 61, 4))
    assert evaluations[-1]["test_accuracy"] >= 0.8
    loss, accuracy = evaluate(net, dataset.test, 7)
    assert (loss, accuracy) == (pytest.approx(evaluations[-1]["test_loss"]), evaluations[-1]["test_accuracy"])


@pytest.mark.parametrize("version, steps", [(3, [5, 6]), (5, [5, 6, 7])])
def test_a_loss_that_is_not_finite_stops_training(dataset, tmp_path, version, steps):
    """The loss of step 7, or the test loss after step 8; checkpoint and log stay good."""
    file, log = tmp_path / "state.h5", tmp_path / "log.jsonl"
    run_training(dataset, epochs=1, checkpoint=file)
    good = file.read_bytes()

    def explode(net):
        if net.parameters.version == version:
            net.parameters["4.weight"][...] = np.inf

    with pytest.raises(bp.NonFiniteError, match=rf"step {steps[-1] + 1}"):
        run_training(dataset, resume=file, epochs=2, checkpoint=file, log=log, gradient_hook=explode)
    assert file.read_bytes() == good
    assert [json.loads(line)["step"] for line in log.read_text(encoding="utf-8").splitlines()] == steps
