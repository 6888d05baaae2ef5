"""bppsa-train over ranks: the losses of one process, refusals on one line, and kills."""

import re
import subprocess
import sys
from pathlib import Path

import mpi
import numpy as np
import pytest
import rank_kills

from bppsa_cupy.tools import plan
from bppsa_cupy.training.checkpoint import load_checkpoint

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Losses and checkpoint of one process."""
    folder = tmp_path_factory.mktemp("whole")
    ended = mpi.finish(rank_kills.train(folder, 1))
    assert ended.returncode == 0, ended.stderr
    return rank_kills.losses(folder), load_checkpoint(folder / "net.h5")


def test_losses_and_checkpoint_are_those_of_one_process(expected, tmp_path):
    ended = mpi.finish(rank_kills.train(tmp_path, 3))
    assert ended.returncode == 0, ended.stderr
    losses, theirs = expected
    ours = load_checkpoint(tmp_path / "net.h5")
    assert rank_kills.losses(tmp_path) == losses
    assert (ours.step, ours.random_state, ours.network) == (theirs.step, theirs.random_state, theirs.network)
    arrays = [(ours.parameters, theirs.parameters)]
    arrays.append((ours.optimizer.pop("arrays"), dict(theirs.optimizer).pop("arrays")))
    assert ours.optimizer == {name: value for name, value in theirs.optimizer.items() if name != "arrays"}
    for mine, other in arrays:
        assert list(mine) == list(other)
        for name, array in mine.items():
            np.testing.assert_array_equal(array, other[name], strict=True)


def test_a_rank_that_is_killed(expected, tmp_path):
    rank_kills.kill_and_resume(tmp_path, 1, expected[0])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "--ranks layers"),
        (["--ranks", "layers", "--data", "/no/data"], "/no/data"),
        (["--ranks", "layers", "--plan", "p.h5"], "12 over 2"),
        (["--ranks", "layers", "--lr", "1e30"], "loss"),
    ],
)
def test_an_error_is_told_once(options, named, tmp_path, monkeypatch):
    if "p.h5" in options:
        monkeypatch.chdir(tmp_path)
        words = "build lenet5 --input-shape 1,32,32 --rank-count 3 --device host --schedules linear -o p.h5"
        assert plan.main(words.split()) == 0
    program = ["-m", "bppsa_cupy.tools.train", *rank_kills.OPTIONS, "--optimizer", "sgd", *options]
    ended = mpi.finish(mpi.start(2, *program))
    assert ended.returncode == 1
    assert re.fullmatch(r"error: rank [01]: .*\n", ended.stderr) and named in ended.stderr, ended.stderr


@pytest.mark.parametrize(
    "odd, code, words",
    [
        ("--ranks layers --epochs x", 2, "argument --epochs: 'x' is no"),
        ("--ranks layers --seed 1", 1, r"error: rank \d: ranks 0 and 1 differ in --seed: '0' and '1'"),
    ],
)
def test_options_of_one_rank_that_differ_end_all(odd, code, words):
    """A rank with a mistyped option, and one with another seed."""
    train = f"{Path(sys.executable).with_name('bppsa-train')} {' '.join(rank_kills.OPTIONS)}"
    command = f"if [ $PMI_RANK = 1 ]; then {train} {odd}; else {train} --ranks layers; fi"
    ended = subprocess.run(
        [mpi.MPIEXEC, "-n", "2", "sh", "-c", command], capture_output=True, encoding="utf-8", timeout=60
    )
    assert ended.returncode == code and re.search(words, ended.stderr), ended.stderr
