"""bppsa-train: what is refused before training starts, and resuming by the command line."""

import json
import os
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from commands import command, error_line, folder, train  # noqa: F401

from bppsa_cupy.training.checkpoint import load_checkpoint, save_checkpoint

pytestmark = pytest.mark.usefixtures("folder")


def resume(*arguments):
    return train("--epochs", 2, "--resume", "c.h5", *arguments)


@pytest.fixture
def checkpoint(folder, capsys):
    """One epoch with a learning rate and momentum that are not the defaults."""
    assert train("--lr", 0.02, "--momentum", 0.5, "--checkpoint", "c.h5", "--log", "log.jsonl") == 0
    capsys.readouterr()


def test_resuming_takes_the_optimizer_of_the_checkpoint(checkpoint, capsys):
    assert resume("--log", "log.jsonl", "--checkpoint", "d.h5") == 0
    assert resume("--log", "same.jsonl", "--lr", 0.02, "--momentum", 0.5) == 0
    assert len(Path("log.jsonl").read_text(encoding="utf-8").splitlines()) == 10
    rows = [json.loads(row) for row in Path("same.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows[0].pop("ran")["method"] == "bp"  # in the first row of a log
    assert [json.loads(row) for row in Path("log.jsonl").read_text(encoding="utf-8").splitlines()[5:]] == rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lr", 7], "trained with lr 0.02 and lr 7.0 is asked for"),
        (["--momentum", 0], "keeps velocity, this one no array: give momentum 0.5, not 0.0"),
        (["--momentum", 0.9, "--lr", 1], "with lr 0.02, momentum 0.5 and lr 1.0, momentum 0.9 is asked for"),
        (["--optimizer", "adam"], "optimizer is SGD, this one is Adam"),
        (["--batch-size", 4], "batch_size 8 and 4 is asked for"),
        (["--layer-lr", "0:0.5"], "groups [] and groups [{'params': ["),
    ],
)
def test_other_settings_are_named(checkpoint, capsys, arguments, message):
    log = Path("log.jsonl").read_text(encoding="utf-8")
    assert resume("--log", "log.jsonl", *arguments) == 1
    assert message in error_line(capsys)
    assert Path("log.jsonl").read_text(encoding="utf-8") == log


def test_resuming_takes_the_recipe_of_the_checkpoint(capsys):
    recipe = (
        "--lr-schedule warmup:3,cosine:10 --label-smoothing 0.1 --optimizer adamw --layer-lr 0:0.5".split()
    )
    assert train("--epochs", 2, "--log", "whole.jsonl", *recipe) == 0
    assert train("--epochs", 2, "--iterations", 3, "--checkpoint", "c.h5", "--log", "log.jsonl", *recipe) == 0
    assert resume("--log", "log.jsonl") == 0
    whole, rows = (
        [
            (row["loss"], row["lr"])
            for row in map(json.loads, Path(name).read_text(encoding="utf-8").splitlines())
        ]
        for name in ("whole.jsonl", "log.jsonl")
    )
    assert rows == whole and len(rows) == 10 and rows[0][1] < rows[2][1] > rows[9][1]
    assert resume("--lr-schedule", "half:1") == 1
    assert "lr_schedule warmup:3,cosine:10 and half:1 is asked for" in error_line(capsys)


def test_other_data_is_named_and_a_file_may_be_moved(checkpoint, capsys):
    with np.load("data.npz") as data:
        np.savez("other.npz", **{**data, "y_test": (data["y_test"] + 1) % 3})
    assert resume("--data", "other.npz") == 1
    assert re.search(
        r"c\.h5: .* trained with data data \(SHA-256 .* and other \(.* is asked", error_line(capsys)
    )
    Path("data.npz").rename("moved.npz")
    assert again() == 1
    assert "trained with data data that was read from /" in error_line(capsys)
    assert again("--data", "moved.npz", "--epochs", 2) == 0
    assert load_checkpoint("c.h5").step == 10


def again(*arguments):
    """The exit code of bppsa-train --resume c.h5, with nothing else but the device."""
    return command("bppsa-train")(["--resume", "c.h5", "--device", "host", *map(str, arguments)])


def test_a_checkpoint_alone_goes_on_and_is_written(folder, capsys, monkeypatch):
    """Stopped by a callback in the first of three epochs; resumed from another folder without a word more."""
    asked = "--epochs 3 --method linear --plan p.h5 --clip 0.5 --lr-schedule cosine --log log.jsonl".split()
    words = "build model.py:small --device host -o p.h5 --batch-size 8 --schedules linear"
    assert command("bppsa-plan")(words.split()) == 0
    assert train(*asked, "--checkpoint", "whole.h5") == 0
    log = Path("log.jsonl").read_text(encoding="utf-8")
    loop = import_module("bppsa_cupy.training.loop")
    with monkeypatch.context() as patched:
        patched.setattr(
            loop, "save_checkpoint", lambda *given: save_checkpoint(*given) or os.kill(os.getpid(), 2)
        )
        assert train(*asked, "--checkpoint", "c.h5") == 130
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    Path("../c.h5").rename("c.h5")
    capsys.readouterr()
    assert again() == 0
    out = capsys.readouterr().out
    assert "from step 5 of c.h5\nepoch 2: test loss" in out
    assert "\nsteps 6 to 15" in out and "backward: linear" in out
    assert Path("../log.jsonl").read_text(encoding="utf-8") == log
    assert Path("c.h5").read_bytes() == Path("../whole.h5").read_bytes()
    assert again() == 0 and "nothing to do" in capsys.readouterr().out
    assert again("--clip", 2) == 1
    assert "trained with clip 0.5 and 2.0 is asked for" in error_line(capsys)
    assert again("../model.py:wide") == 1
    assert "out_features 5 in the checkpoint, 6 in the network" in error_line(capsys)


def test_a_log_that_was_cut_is_taken_up(checkpoint, capsys):
    text = Path("log.jsonl").read_text(encoding="utf-8")
    Path("log.jsonl").write_text(text[:-20], encoding="utf-8")
    assert resume("--log", "log.jsonl") == 0
    steps = [json.loads(line)["step"] for line in Path("log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert steps == [1, 2, 3, 4, 6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--plan p.h5 --method linear", "batches of 8 samples were asked for, the plan holds 2"),
        ("--plan p.h5 --method blelloch", "the plan has no schedule 'blelloch'"),
        ("--checkpoint none/c.h5", "none/c.h5 cannot be written"),
        ("--plot none/p.png", "none/p.png cannot be written"),
        ("--plot p.txt", "p.txt names no format of pictures"),
        ("--optimizer adam --momentum 0.5", "--momentum is of sgd"),
        ("--lr nan", "lr=nan"),
        ("--lr-schedule fast", "'fast' is no schedule of the learning rate: give step:EPOCHS:GAMMA"),
        (
            "--augment crop-flip",
            "crop-flip was asked for, and the samples are (4,): it takes images (C, H, W)",
        ),
        ("--label-smoothing 2", "label_smoothing=2.0: it takes a number"),
        ("--layer-lr 77:0.1", "group 0 has the parameters '77': the network has"),
        ("--clip 0", "clip"),
    ],
)
def test_a_start_that_fails_keeps_the_log(capsys, arguments, message):
    Path("log.jsonl").write_text("old", encoding="utf-8")
    words = "build model.py:small --device host -o p.h5 --batch-size 2 --schedules linear"
    assert command("bppsa-plan")(words.split()) == 0
    assert capsys.readouterr().out.startswith("device host, float32\n")
    assert train("--log", "log.jsonl", *arguments.split()) == 1
    assert message in error_line(capsys)
    assert Path("log.jsonl").read_text(encoding="utf-8") == "old"


def test_a_schedule_is_drawn_to_a_picture_alone(capsys):
    assert command("bppsa-plan")("build model.py:small --device host -o p.h5".split()) == 0
    capsys.readouterr()
    assert command("bppsa-plan")("draw p.h5 -o x.txt".split()) == 1
    assert "x.txt names no format of pictures" in error_line(capsys)


def test_a_plan_too_small_for_the_batch_is_told_of_before_training(capsys):
    assert command("bppsa-plan")("build model.py:small --device host -o p.h5 --batch-size 8".split()) == 0
    assert train("--plan", "p.h5", "--batch-size", 16) == 0  # the last batch has 8
    err = capsys.readouterr().err
    assert err.startswith("warning: the plan holds batches up to 8, and those of 16 samples run bp: give")
    assert len(err.splitlines()) == 1
