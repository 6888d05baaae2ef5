"""A checkpoint holds all that its network is made of; bppsa-train --resume goes on with it alone."""

from pathlib import Path

import numpy as np
import pytest
from commands import command, error_line, folder, train  # noqa: F401  folder is a fixture
from layer_cases import CASES

import bppsa_cupy as bp
from bppsa_cupy.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from bppsa_cupy.training.rebuild import load_network


def checkpoint_of(net):
    return Checkpoint(
        net.describe(),
        net.dtype.name,
        net.state_dict(),
        net.masks,
        random_state={"network": net.random_state},
    )


def saved(net, path):
    save_checkpoint(path, checkpoint_of(net))
    return load_network(path, "host")


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_layer_comes_back(case, tmp_path):
    net = bp.Sequential([case.make()], case.input_shape, dtype="float64", device="host", seed=3)
    again = saved(net, tmp_path / "c.h5")
    assert (repr(again), again.fingerprint) == (repr(net), net.fingerprint)
    assert again.random_state == net.random_state
    for name, array in net.state_dict().items():
        assert np.array_equal(array, again.state_dict()[name])


# ---- bppsa-train --resume ----


def resume(*arguments):
    return command("bppsa-train")(["--data", "data.npz", "--device", "cpu", *map(str, arguments)])


def test_resume_takes_network_seed_batch_size_and_dtype_from_the_checkpoint(folder, capsys):
    options = "--seed", 5, "--dtype", "float64", "--checkpoint", "c.h5"
    assert train("--epochs", 3, *options) == 0
    whole = load_checkpoint("c.h5")
    assert train("--epochs", 2, *options) == 0
    Path("model.py").unlink()
    assert resume("--epochs", 3, "--resume", "c.h5", "--checkpoint", "d.h5") == 0
    resumed = load_checkpoint("d.h5")
    assert resumed.step == whole.step and resumed.dtype == "float64"
    for name, array in whole.parameters.items():
        assert np.array_equal(array, resumed.parameters[name])
