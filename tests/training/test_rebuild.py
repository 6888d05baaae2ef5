"""A checkpoint holds all that its network is made of; bppsa-train --resume goes on with it alone."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from commands import command, error_line, folder, train  # noqa: F401  folder is a fixture
from layer_cases import CASES

import bppsa_cupy as bp
from bppsa_cupy.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from bppsa_cupy.training.rebuild import load_network, network_of


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


def test_masks_blocks_and_open_steps_come_back(tmp_path):
    block = bp.Residual([bp.Conv2d(2, 2, 3, padding=1), bp.ReLU()], [bp.Conv2d(2, 2, 1)])
    net = bp.Sequential([block, bp.Flatten(), bp.Linear(32, 3)], (2, 4, 4), device="host")
    bp.prune(net, 0.5)
    assert saved(net, tmp_path / "a.h5").fingerprint == net.fingerprint
    net = bp.Sequential([bp.MGU(3, 4), bp.Linear(4, 2)], (None, 3), device="host")
    assert saved(net, tmp_path / "b.h5").input_shape == (None, 3)


def leaky(name="leaky"):
    step = lambda x, u, s, p: {"h": 0.5 * s.h + 0.25 * (x.h + u.h)}  # noqa: E731
    return bp.Cell(name, gates=["h"], states=["h"], step=step)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda layers: layers[0].update(type="Own"), "has a layer Own, which is none of this package's"),
        (lambda layers: layers[0].pop("in_features"), "describes no network .*in_features.*: give the model"),
        (lambda layers: layers[0].update(in_features=9), "describes no network .*its last size must be 9"),
        (lambda layers: layers[0].update(more=1), "describes no network .*more"),
        (lambda layers: layers[0].update(input_shape=[5]), "belongs to another network"),
        (lambda layers: layers.append(3), "describes no network"),
    ],
)
def test_a_description_of_no_network_is_refused(change, message):
    given = checkpoint_of(bp.Sequential([bp.Linear(4, 2)], (4,), device="host"))
    change(given.network["layers"])
    with pytest.raises(bp.CheckpointError, match=message):
        network_of(given, "host")


@pytest.mark.parametrize("layer", [lambda: bp.CellLayer(leaky(), 3, 4), lambda: bp.CTRNN(3, 4, alpha=0.25)])
def test_a_cell_that_no_file_holds_is_refused(layer):
    given = checkpoint_of(bp.Sequential([layer()], (5, 3), device="host"))
    with pytest.raises(bp.CheckpointError, match="whose definition no file holds: give the model"):
        network_of(given, "host")


def test_parameters_of_another_network_are_refused():
    given = checkpoint_of(bp.Sequential([bp.Linear(4, 2)], (4,), device="host"))
    with pytest.raises(bp.CheckpointError, match=r"missing \['0.bias'\]"):
        network_of(dataclasses.replace(given, parameters={"0.weight": given.parameters["0.weight"]}), "host")


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


def test_without_a_model_and_a_checkpoint_usage_is_wrong(folder, capsys):
    with pytest.raises(SystemExit) as end:
        resume()
    assert end.value.code == 2
    assert "required: MODEL and --data, or --resume CHECKPOINT" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--hidden-size 3", "--prune 0.5", "--from c.h5", "--bidirectional"])
def test_options_that_shape_a_model_take_one(folder, capsys, option):
    assert train("--epochs", 1, "--checkpoint", "c.h5") == 0
    Path("model.py").unlink()  # so the network is made of what the checkpoint holds
    capsys.readouterr()
    assert resume("--resume", "c.h5", *option.split()) == 1
    assert f"{option.split()[0]} shapes a MODEL, and the network is that of c.h5" in error_line(capsys)
