"""bppsa-train with a pipeline: alone, and as many processes as stages."""

import json
import re

import mpi
import pytest

from bppsa_cupy.tools import train
from bppsa_cupy.training.checkpoint import load_checkpoint

OPTIONS = ["lenet5", "--data", "digits", "--iterations", "6", "--batch-size", "128", "--device", "host"]


def losses(path):
    return [json.loads(line)["loss"] for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """The folder of a run by one process."""
    folder = tmp_path_factory.mktemp("simulated")
    assert train.main([*OPTIONS, "--ppv", "1,3", *files(folder)]) == 0
    return folder


def files(folder):
    return [f"--{name}={folder / name}" for name in ("log", "checkpoint", "trace")]


@pytest.mark.long
def test_ranks_train_as_one_process_does(simulated, tmp_path):
    ended = mpi.run(3, "-m", "bppsa_cupy.tools.train", *OPTIONS, "--ppv", "1,3", *files(tmp_path))
    assert ended.stdout.startswith("pipeline stale on 3 ranks: stages with layers 1; 2 to 3; 4 to 5\n")
    assert losses(tmp_path / "log") == losses(simulated / "log")
    ours, theirs = (load_checkpoint(folder / "checkpoint") for folder in (tmp_path, simulated))
    assert ours.step == theirs.step == 6
    for name, array in ours.parameters.items():
        assert (array == theirs.parameters[name]).all()
    for folder in (tmp_path, simulated):
        events = json.loads((folder / "trace").read_text(encoding="utf-8"))["traceEvents"]
        assert sum(event["cat"] != "wait" for event in events) == 6 * 3 * 3
        assert {event["pid"] for event in events} == {0, 1, 2}


def test_it_says_what_ran(simulated, tmp_path, capsys):
    again = ["--ppv", "balanced:1", "--pipeline", "pipedream", "--epochs", "2", *files(tmp_path)]
    assert train.main([*OPTIONS[:3], *OPTIONS[5:], *again, "--resume", str(simulated / "checkpoint")]) == 0
    out = capsys.readouterr().out
    assert re.search(r"pipeline pipedream simulated by one process: stages with layers 1.*; .* to 5\n", out)
    assert re.search(r"backward: bp \(pipeline pipedream, ppv \(\d,\), 2 stages simulated", out)
    assert "steps 7 to 24" in out
    first = json.loads((simulated / "log").read_text(encoding="utf-8").splitlines()[0])
    assert first["ran"]["reason"] == "pipeline stale, ppv (1, 3), 3 stages simulated by one process"


@pytest.mark.long
def test_ranks_resume_what_one_process_saved(simulated, tmp_path):
    again = ["--ppv", "2", "--pipeline", "1f1b", "--micro-batches", "3", "--iterations", "9"]
    again = [*OPTIONS[:3], *OPTIONS[5:], *again, "--resume", simulated / "checkpoint"]
    mpi.run(2, "-m", "bppsa_cupy.tools.train", *again, *files(tmp_path))
    alone = tmp_path / "alone"
    alone.mkdir()
    assert train.main([*map(str, again), *files(alone)]) == 0
    assert losses(tmp_path / "log") == losses(alone / "log") and len(losses(alone / "log")) == 3
    ours, theirs = (load_checkpoint(folder / "checkpoint") for folder in (tmp_path, alone))
    assert ours.step == theirs.step == 9
    for mine, other in ((ours.parameters, theirs.parameters),
                        (ours.optimizer["arrays"], theirs.optimizer["arrays"])):  # fmt: skip
        for name, array in mine.items():
            assert (array == other[name]).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--pipeline", "stale"], "--pipeline is of pipelines: give --ppv"),
        (["--non-pipelined-after", "3"], "--non-pipelined-after is of pipelines"),
        (["--ppv", "1", "--ranks", "layers"], "--ranks does not go with --ppv"),
        (["--ppv", "1", "--clip", "1"], "--clip does not go with --ppv"),
        (["--ppv", "1", "--method", "linear"], "'linear'.*goes back by bp|scans by a plan"),
        (["--ppv", "5"], "1 to 4 that increase"),
        (["--ppv", "balanced:5"], "takes 0 to 4"),
        (["--ppv", "1", "--micro-batches", "2"], "'stale' has whole batches: take gpipe, 1f1b"),
        (["--ppv", "1", "--pipeline", "gpipe", "--predict"], "predict is of schedules with stale weights"),
        (["--ppv", "1", "--pipeline", "1f1b", "--micro-batches", "129"], "129 micro-batches of a batch"),
        (["--ppv", "1", "--predict", "--optimizer", "adam"], "Adam: take SGD"),
        (["--ppv", "1", "--trace", "/no/folder/trace.json"], "/no/folder"),
    ],
)  # fmt: skip
def test_an_error_is_one_line(options, words, capsys):
    assert train.main([*OPTIONS, *options]) == 1
    err = capsys.readouterr().err
    assert re.fullmatch(f"error: .*({words}).*\n", err), err


@pytest.mark.long
def test_a_number_of_ranks_that_does_not_fit():
    ended = mpi.finish(mpi.start(2, "-m", "bppsa_cupy.tools.train", *OPTIONS, "--ppv", "1,3"))
    assert ended.returncode == 1
    assert re.fullmatch(r"error: rank \d: the pipeline has 3 stages .* group 2 ranks: .*\n", ended.stderr)
