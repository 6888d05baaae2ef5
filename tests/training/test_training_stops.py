"""What stops training before it starts, or where it diverges, leaves good files as they were."""

import json

import numpy as np
import pytest
from training_cases import dataset, make, optimizer_of, run  # noqa: F401

import bppsa_cupy as bp


@pytest.fixture
def checkpoint(dataset, tmp_path):
    """A good checkpoint of step 4."""
    run(dataset, epochs=1, checkpoint=tmp_path / "good.h5")
    return tmp_path / "good.h5"


# ---- divergence ----


def test_a_test_loss_that_is_not_finite_keeps_the_checkpoint(dataset, checkpoint, tmp_path):
    good, log = checkpoint.read_bytes(), tmp_path / "log.jsonl"

    def last_step(network):
        if network.parameters.version == 5:
            network.parameters["4.weight"][...] = np.inf

    with pytest.raises(bp.NonFiniteError, match=r"test loss is (nan|inf) after step 8.*last good .*good\.h5"):
        run(
            dataset,
            resume=checkpoint,
            epochs=2,
            checkpoint=checkpoint,
            log=log,
            gradient_hook=last_step,
        )
    assert checkpoint.read_bytes() == good
    assert [json.loads(line)["step"] for line in log.read_text(encoding="utf-8").splitlines()] == [5, 6, 7]


# ---- failed starts ----


# ---- resuming ----
