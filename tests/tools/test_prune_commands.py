"""--prune, --prune-scope and --from on the command lines: plan and training of one seed fit each other."""

import numpy as np
import pytest
from commands import command, error_line, folder, train  # noqa: F401

import bppsa_cupy as bp
from bppsa_cupy.models import build_model
from bppsa_cupy.training.checkpoint import load_checkpoint

pytestmark = pytest.mark.usefixtures("folder")

MODEL = "model.py:small"


def plan(*options):
    words = ["build", MODEL, "--device", "host", "--batch-size", "8", "-o", "plan.h5", *options]
    return command("bppsa-plan")([str(word) for word in words])


def scan(*options):
    return train("--plan", "plan.h5", "--method", "blelloch", *options)


def zeros(checkpoint):
    """The part of each weight that is 0."""
    parameters = load_checkpoint(checkpoint).parameters
    return {name: float((array == 0).mean()) for name, array in parameters.items() if "weight" in name}


def test_one_seed_gives_one_pruned_network(capsys):
    assert plan("--prune", 0.8, "--seed", 3) == 0
    assert scan("--prune", 0.8, "--seed", 3, "--checkpoint", "c.h5") == 0
    assert zeros("c.h5") == {"0.weight": 16 / 20, "2.weight": 12 / 15}
    masks = bp.prune(build_model(MODEL, seed=3, device="host"), 0.8)
    for name, mask in load_checkpoint("c.h5").masks.items():
        np.testing.assert_array_equal(mask, masks[name])
    assert plan("--prune", 0.8, "--seed", 3, "--dtype", "float64") == 0
    assert scan("--prune", 0.8, "--seed", 3) == 0, "a plan does not depend on the dtype"
    capsys.readouterr()
    assert scan("--prune", 0.8, "--seed", 4) == 1
    assert "layer 0 Linear: weight_mask" in error_line(capsys)
    assert scan("--seed", 3) == 1
    assert "in the plan, None in the network" in error_line(capsys)


def test_one_threshold_over_all_layers():
    assert plan("--prune", 0.8, "--prune-scope", "global") == 0
    assert scan("--prune", 0.8, "--prune-scope", "global", "--checkpoint", "c.h5") == 0
    first, second = zeros("c.h5").values()
    assert 20 * first + 15 * second == pytest.approx(28) and first != 0.8


def test_a_trained_network_is_pruned_and_retrained(capsys):
    assert train("--checkpoint", "dense.h5") == 0
    dense = load_checkpoint("dense.h5")
    start = ("--prune", 0.6, "--from", "dense.h5")
    assert plan(*start) == 0
    assert scan(*start, "--seed", 8, "--checkpoint", "pruned.h5") == 0
    pruned = load_checkpoint("pruned.h5")
    for name, mask in pruned.masks.items():
        kept = np.sort(np.abs(dense.parameters[name][mask]))
        assert kept[0] >= np.abs(dense.parameters[name][~mask]).max()
        assert not pruned.parameters[name][~mask].any()
    # What is pruned already: by its checkpoint alone, to resume, to go on from, to prune more, to dump.
    assert plan("--from", "pruned.h5") == 0
    assert scan("--seed", 8, "--epochs", 2, "--resume", "pruned.h5", "--checkpoint", "more.h5") == 0
    assert scan(*start, "--seed", 8, "--epochs", 2, "--resume", "pruned.h5", "--checkpoint", "same.h5") == 0
    more, same = load_checkpoint("more.h5"), load_checkpoint("same.h5")
    for name, array in more.parameters.items():
        np.testing.assert_array_equal(array, same.parameters[name])
    assert scan("--from", "pruned.h5") == 0
    assert train("--from", "pruned.h5", "--prune", 0.8, "--checkpoint", "again.h5") == 0
    again = load_checkpoint("again.h5").masks
    assert all((mask <= pruned.masks[name]).all() for name, mask in again.items())
    dump = [
        "dump",
        MODEL,
        "--data",
        "data.npz",
        "--device",
        "host",
        "-o",
        "j.h5",
        "--checkpoint",
        "pruned.h5",
    ]
    assert command("bppsa-jacobians")(dump) == 0
    assert bp.load_jacobians("j.h5")[0].pattern.nnz == int(pruned.masks["0.weight"].sum())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prune-scope", "global"], "--prune-scope says how to prune: give --prune F"),
        (["--from", "none.h5"], "none.h5 does not exist"),
        (["--from", "dense.h5", "--dtype", "float64"], "dtype float32 in the checkpoint, float64"),
    ],
)
def test_stated_errors(capsys, options, message):
    assert train("--checkpoint", "dense.h5") == 0
    capsys.readouterr()
    assert plan(*options) == 1
    assert message in error_line(capsys)


def test_a_pruned_checkpoint_of_another_network_is_told_by_what_differs(capsys):
    assert train("--prune", 0.5, "--checkpoint", "small.h5") == 0
    capsys.readouterr()
    options = ["model.py:wide", "--data", "data.npz", "--device", "host", "--from", "small.h5"]
    assert command("bppsa-train")(options) == 1
    assert "layer 0 Linear: out_features 5 in the checkpoint, 6 in the network" in error_line(capsys)


@pytest.mark.parametrize("fraction", ["1.5", "-1", "nan", "most"])
def test_other_fractions_are_wrong_usage(capsys, fraction):
    with pytest.raises(SystemExit) as exit:
        plan(f"--prune={fraction}")
    assert exit.value.code == 2
    assert "no fraction: give a number from 0 to 1" in capsys.readouterr().err


def test_gradual_pruning_and_a_stop_inside(capsys):
    options = ("--prune-to", 0.8, "--prune-from-step", 1, "--prune-until-step", 5, "--prune-every", 2)
    assert train(*options, "--epochs", 3, "--checkpoint", "whole.h5") == 0
    assert zeros("whole.h5") == {"0.weight": 16 / 20, "2.weight": 12 / 15}
    assert train(*options, "--epochs", 1, "--checkpoint", "part.h5") == 0
    assert command("bppsa-train")(["--resume", "part.h5", "--epochs", "3"]) == 0
    whole, part = load_checkpoint("whole.h5"), load_checkpoint("part.h5")
    assert all((part.parameters[name] == array).all() for name, array in whole.parameters.items())
    capsys.readouterr()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--prune-to", 0.8), "--prune-to lacks --prune-until-step"),
        (("--prune-every", 5), "lacks --prune-to and --prune-until-step"),
        (("--rigl-fraction", 0.2), "--rigl-fraction lacks --rigl-until-step"),
        (("--rigl-until-step", 9), "the network has none"),
        (("--rigl-until-step", 9, "--prune-to", 0.8, "--prune-until-step", 9), "give one of them"),
        (("--prune", 0.9, "--prune-to", 0.8, "--prune-until-step", 9), "give a larger to"),
        (("--prune-to", 0.8, "--prune-until-step", 9, "--plan", "plan.h5"), "train without a plan"),
        (("--prune-to", 0.8, "--prune-until-step", 9, "--micro-batch", 4), "micro-batches"),
    ],
)
def test_masks_that_cannot_change(capsys, options, message):
    if "--plan" in options:
        assert plan() == 0
    capsys.readouterr()
    assert train(*options) == 1
    assert message in error_line(capsys)


def test_rigl_keeps_as_many_as_there_were():
    assert train("--prune", 0.8, "--rigl-until-step", 4, "--rigl-every", 1, "--checkpoint", "c.h5") == 0
    kept = {name: int(mask.sum()) for name, mask in load_checkpoint("c.h5").masks.items()}
    assert kept == {"0.weight": 4, "2.weight": 3}
