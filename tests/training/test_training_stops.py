"""What stops training before it starts, or where it diverges, leaves good files as they were."""

import json

import numpy as np
import pytest
from training_cases import dataset, make, optimizer_of, run  # noqa: F401

import bppsa_cupy as bp
from bppsa_cupy.data import load


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


@pytest.fixture
def without_test(tmp_path):
    rng = np.random.default_rng(4)
    np.savez(tmp_path / "d.npz", x=rng.standard_normal((32, 1, 6, 6)), y=np.arange(32) % 3)
    return load(tmp_path / "d.npz")


def test_parameters_that_are_not_finite_are_not_saved(without_test, tmp_path):
    file = tmp_path / "state.h5"

    def poison(network):
        network.parameters["4.weight"][0, 0] = np.inf

    with pytest.raises(bp.NonFiniteError, match="parameter or buffer is not finite after step 1:") as caught:
        run(without_test, epochs=2, iterations=1, checkpoint=file, gradient_hook=poison)
    assert not file.exists() and "last good" not in str(caught.value)


# ---- failed starts ----


# ---- resuming ----
