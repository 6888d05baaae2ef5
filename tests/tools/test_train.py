"""bppsa-train: resuming, pruning and pipelines by the command line, and what is refused before training."""

import json
import os
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from commands import command, error_line, folder, train  # noqa: F401  folder is a fixture

import bppsa_cupy as bp
from bppsa_cupy.training.checkpoint import load_checkpoint, save_checkpoint

pytestmark = pytest.mark.usefixtures("folder")


def plan(*options):
    words = ["build", "model.py:small", "--device", "host", "--batch-size", "8", "-o", "plan.h5", *options]
    return command("bppsa-plan")([str(word) for word in words])


def scan(*options):
    return train("--plan", "plan.h5", "--method", "blelloch", *options)


def rows_of(name):
    return [json.loads(line) for line in Path(name).read_text(encoding="utf-8").splitlines()]


def same_parameters(first, second):
    ours, theirs = load_checkpoint(first), load_checkpoint(second)
    for name, array in ours.parameters.items():
        np.testing.assert_array_equal(array, theirs.parameters[name], err_msg=name)
    return ours.step == theirs.step


# ---- resuming ----


@pytest.fixture
def checkpoint(folder, capsys):
    """One epoch with a learning rate and momentum that are not the defaults."""
    assert train("--lr", 0.02, "--momentum", 0.5, "--checkpoint", "c.h5", "--log", "log.jsonl") == 0
    capsys.readouterr()


def resume(*arguments):
    return train("--epochs", 2, "--resume", "c.h5", *arguments)


def again(*arguments):
    """The exit code of bppsa-train --resume c.h5, with nothing else but the device."""
    return command("bppsa-train")(["--resume", "c.h5", "--device", "host", *map(str, arguments)])


def test_resuming_uses_the_recipe_of_the_checkpoint(capsys):
    recipe = "--lr-schedule warmup:3,cosine:10 --label-smoothing 0.1 --optimizer adamw".split()
    assert train("--epochs", 2, "--log", "whole.jsonl", *recipe) == 0
    assert train("--epochs", 2, "--iterations", 3, "--checkpoint", "c.h5", "--log", "log.jsonl", *recipe) == 0
    assert resume("--log", "log.jsonl") == 0
    expected, rows = ([(row["loss"], row["lr"]) for row in rows_of(n)] for n in ("whole.jsonl", "log.jsonl"))
    assert rows == expected and len(rows) == 10 and rows[0][1] < rows[2][1] > rows[9][1]


@pytest.mark.parametrize("arguments", [
    ("--lr", 7), ("--momentum", 0), ("--optimizer", "adam"), ("--batch-size", 4),
    ("--label-smoothing", 0.2), ("--lr-schedule", "half:1"), ("--data", "other.npz"),
])  # fmt: skip
def test_other_settings_are_refused(checkpoint, capsys, arguments):
    with np.load("data.npz") as data:
        np.savez("other.npz", **{**data, "y_test": (data["y_test"] + 1) % 3})
    log = Path("log.jsonl").read_text(encoding="utf-8")
    assert resume("--log", "log.jsonl", *arguments) == 1
    assert "c.h5" in error_line(capsys)
    assert Path("log.jsonl").read_text(encoding="utf-8") == log


def test_a_checkpoint_alone_goes_on_and_is_written(folder, capsys, monkeypatch):
    """Stopped by Ctrl-C in the first of three epochs; resumed from another folder without a word more."""
    asked = (
        "--epochs 3 --method linear --plan plan.h5 --clip 0.5 --lr-schedule cosine --log log.jsonl".split()
    )
    assert plan("--schedules", "linear") == 0
    assert train(*asked, "--checkpoint", "whole.h5") == 0
    log = Path("log.jsonl").read_text(encoding="utf-8")
    loop = import_module("bppsa_cupy.training.loop")
    with monkeypatch.context() as patched:
        patched.setattr(
            loop, "save_checkpoint", lambda *arguments: save_checkpoint(*arguments) or os.kill(os.getpid(), 2)
        )
        assert train(*asked, "--checkpoint", "c.h5") == 130
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    Path("../c.h5").rename("c.h5")
    assert again() == 0
    assert Path("../log.jsonl").read_text(encoding="utf-8") == log
    assert Path("c.h5").read_bytes() == Path("../whole.h5").read_bytes()
    assert again() == 0 and again("--clip", 2) == 1 and again("../model.py:wide") == 1
    Path("../data.npz").rename("../moved.npz")
    assert again("--epochs", 4) == 1 and again("--epochs", 4, "--data", "../moved.npz") == 0


# ---- refusals ----


@pytest.mark.parametrize("arguments", [
    "--plan plan.h5 --method linear --batch-size 9", "--plan plan.h5 --method blelloch", "--method blelloch",
    "--checkpoint none/c.h5", "--plot none/p.png", "--plot p.txt", "--optimizer adam --momentum 0.5",
    "--lr nan", "--lr-schedule fast", "--augment crop-flip", "--label-smoothing 2",
    "--clip 0", "--prune-scope global", "--from none.h5", "--prune-to .8", "--prune-every 5",
    "--rigl-fraction .2", "--rigl-until-step 9", "--prune .9 --prune-to .8 --prune-until-step 9",
    "--prune .2 --rigl-until-step 9 --prune-to .8 --prune-until-step 9",
    "--prune-to .8 --prune-until-step 9 --plan plan.h5", "--partition 0,3",
    "--prune-to .8 --prune-until-step 9 --micro-batch 4", "--pipeline stale", "--non-pipelined-after 3",
    "--ppv 1 --ranks layers", "--ppv 1 --clip 1", "--ppv 1 --method linear", "--ppv 5", "--ppv balanced:5",
    "--ppv 1 --micro-batches 2", "--ppv 1 --pipeline 1f1b --micro-batches 9",
])  # fmt: skip
def test_a_start_that_fails_is_one_line_and_keeps_the_log(capsys, arguments):
    Path("log.jsonl").write_text("old", encoding="utf-8")
    assert plan("--schedules", "linear") == 0
    capsys.readouterr()
    assert train("--log", "log.jsonl", *arguments.split()) == 1
    assert error_line(capsys)
    assert Path("log.jsonl").read_text(encoding="utf-8") == "old"


# ---- pruning ----


def test_a_trained_network_is_pruned_and_retrained():
    assert train("--checkpoint", "dense.h5") == 0
    dense, start = load_checkpoint("dense.h5"), ("--prune", 0.6, "--from", "dense.h5")
    assert plan(*start) == 0
    assert scan(*start, "--seed", 8, "--checkpoint", "pruned.h5") == 0
    pruned = load_checkpoint("pruned.h5")
    for name, mask in pruned.masks.items():
        assert np.abs(dense.parameters[name][mask]).min() >= np.abs(dense.parameters[name][~mask]).max()
        assert not pruned.parameters[name][~mask].any()
    # A pruned checkpoint serves to resume, to start from, to prune more, and to dump.
    assert plan("--from", "pruned.h5") == 0
    for name, options in (("more", ()), ("same", start)):
        options = (*options, "--seed", 8, "--epochs", 2, "--resume", "pruned.h5")
        assert scan(*options, "--checkpoint", f"{name}.h5") == 0
    assert same_parameters("more.h5", "same.h5")
    assert train("--from", "pruned.h5", "--prune", 0.8, "--checkpoint", "again.h5") == 0
    masks = load_checkpoint("again.h5").masks
    assert all((mask <= pruned.masks[name]).all() for name, mask in masks.items())
    dump = "dump model.py:small --data data.npz --device host -o j.h5 --from pruned.h5"
    assert command("bppsa-jacobians")(dump.split()) == 0
    assert bp.load_jacobians("j.h5")[0].pattern.nnz == int(pruned.masks["0.weight"].sum())


# ---- pipelines ----


def test_a_pipeline_is_simulated_and_resumed(capsys):
    assert train("--ppv", "1", "--log", "log.jsonl", "--checkpoint", "c.h5", "--plot", "p.png") == 0
    assert again("--ppv", "balanced:1", "--pipeline", "pipedream", "--epochs", 2) == 0
    assert load_checkpoint("c.h5").step == 10
