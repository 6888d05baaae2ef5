"""A checkpoint holds all that its network is made of; bppsa-train --resume goes on with it alone."""

import numpy as np
import pytest
from commands import command, error_line, folder, train  # noqa: F401  folder is a fixture
from layer_cases import CASES

import bppsa_cupy as bp
from bppsa_cupy.training.checkpoint import Checkpoint, load_network, save_checkpoint


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
    assert (repr(again), again.describe()) == (repr(net), net.describe())
    assert again.random_state == net.random_state
    for name, array in net.state_dict().items():
        assert np.array_equal(array, again.state_dict()[name])


# ---- bppsa-train --resume ----
