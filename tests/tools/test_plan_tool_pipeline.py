"""bppsa-plan pipeline: what is told of a placement and its schedules, and drawn."""

import json
import re

import numpy as np
import pytest
from pipeline_networks import data

import bppsa_cupy as bp
from bppsa_cupy.models import build_model
from bppsa_cupy.pipeline import SCHEDULES, Trace, make_schedule
from bppsa_cupy.pipeline.memory import stage_memory
from bppsa_cupy.tools.plan import main
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.settings import Settings

LENET5 = ["pipeline", "lenet5", "--device", "host", "--batch-size", "8"]


def told(capsys, *options):
    assert main([*options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *options):
    """The one line on stderr."""
    assert main([*options]) == 1
    found = capsys.readouterr()
    (line,) = found.err.splitlines()
    assert line.startswith("error: ") and not found.out
    return line


def test_one_schedule(capsys):
    facts = told(capsys, *LENET5, "--ppv", "1,3", "--batches", "20")
    assert facts["ppv"] == [1, 3] and len(facts["counted"]) == 5
    placement = bp.Placement(build_model("lenet5", device="host"), (1, 3))
    assert facts["stale_share"] == placement.stale_share
    assert [stage["layers"] for stage in facts["stages"]] == ["1", "2 to 3", "4 to 5"]
    assert tuple(stage["weights"] for stage in facts["stages"]) == placement.weights
    (stale,) = facts["schedules"]
    assert [rank["staleness"] for rank in stale["ranks"]] == [4, 2, 0]
    assert [rank["live_passes"] for rank in stale["ranks"]] == [5, 3, 1]
    table = make_schedule("stale", 3, 20)
    assert [table.missed_updates(stage).max() for stage in range(3)] == [4, 2, 0]
    memory = stage_memory(placement, "stale", 8, build_model("lenet5", device="host").dtype)
    assert [rank["bytes"]["total"] for rank in stale["ranks"]] == [own.total for own in memory]
    (of_adam,) = told(capsys, *LENET5, "--ppv", "1,3", "--optimizer", "adam")["schedules"]
    assert [rank["bytes"]["optimizer"] for rank in of_adam["ranks"]] == [2 * own.optimizer for own in memory]
    alone, longest = (
        choose(s["forward_seconds"] + s["backward_seconds"] + s["update_seconds"] for s in facts["stages"])
        for choose in (sum, max)
    )
    assert facts["seconds_alone"] == pytest.approx(alone)
    assert facts["speedup_limit"] == pytest.approx(alone / longest)
    assert 1 < stale["speedup"] < facts["speedup_limit"]
    assert stale["speedup"] == pytest.approx(20 * alone / stale["seconds"])
    assert stale["accelerators"]["count"] == 5 == len(stale["accelerators"]["bubbles"])


def test_all_schedules_in_one_table(capsys):
    options = [*LENET5, "--ppv", "balanced:2", "--schedule", "all", "--micro-batches", "4"]
    facts = told(capsys, *options)
    assert [schedule["name"] for schedule in facts["schedules"]] == list(SCHEDULES)
    micro = {schedule["name"]: schedule["micro_batches"] for schedule in facts["schedules"]}
    assert micro == {name: 4 if kind.micro else 1 for name, kind in SCHEDULES.items()}
    assert main(options) == 0
    out = capsys.readouterr().out
    whole, missed, memory = out[out.index("\nschedules") :].split("\n\n")
    assert [line.split()[0] for line in whole.splitlines()[3:]] == list(SCHEDULES)
    (of_stale,) = (line.split() for line in missed.splitlines() if line.startswith("  stale "))
    assert " ".join(of_stale) == "stale 4 (5) 2 (3) 0 (1)"
    assert "gpipe of 4" in whole and len(memory.splitlines()) == 2 + len(SCHEDULES)
    assert max(map(len, out.splitlines())) <= 100


def test_stages_that_share_ranks(capsys):
    options = [*LENET5, "--ppv", "1,2,3", "--micro-batches", "4"]
    (facts,) = told(capsys, *options, "--schedule", "interleaved-zb", "--ranks", "2")["schedules"]
    assert [rank["stages"] for rank in facts["ranks"]] == [[0, 2], [1, 3]]
    placement = bp.Placement(build_model("lenet5", device="host"), (1, 2, 3))
    memory = stage_memory(placement, "interleaved-zb", 8, np.dtype("float32"), micro=4, ranks=2)
    assert facts["ranks"][1]["bytes"]["total"] == memory[1].total + memory[3].total
    for schedule, ranks, words in (
        ("interleaved-zb", "3", "4 stages .* 3 ranks .* multiple of 3"),
        ("interleaved-1f1b", "4", None),
        ("zb-h1", "2", "'zb-h1' has a stage a rank: take interleaved-1f1b, interleaved-zb"),
    ):
        given = [*options, "--schedule", schedule, "--ranks", ranks]
        if words is None:
            assert main(given) == 0 and "on 4 ranks" in capsys.readouterr().out
        else:
            assert re.search(words, refused(capsys, *given))
    assert "3 micro-batches" in refused(capsys, *options[:-1], "3", "--schedule", "interleaved-zb")


def test_what_is_printed(capsys):
    assert main(["pipeline", "resnet20", "--device", "host", "--ppv", "7"]) == 0
    out = capsys.readouterr().out
    for text in (
        "20 counted layers, cut behind 7",
        "5.4 % are stale",
        "1.03 MiB of weights",
        "58.6 %",
        "8 to 20",
        "predicted by the cost model of host, uncalibrated",
        "on 3 accelerators",
    ):
        assert text in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 100


def test_times_of_a_file(tmp_path, capsys):
    """GPipe's bubbles are K / (m + K) where stages take equal times."""
    path = tmp_path / "times.json"
    path.write_text(json.dumps({"forward": [1, 1, 1], "backward": [2, 2, 2], "update": [0, 0, 0]}))
    options = [*LENET5, "--ppv", "1,3", "--schedule", "gpipe", "--micro-batches", "8"]
    facts = told(capsys, *options, "--stage-times", str(path))
    assert facts["seconds_alone"] == 9 and facts["times"] == str(path)
    # A message takes a fifty-thousandth of a second beside passes of an eighth.
    assert [rank["bubble"] for rank in facts["schedules"][0]["ranks"]] == pytest.approx(
        [2 / 10] * 3, abs=1e-3
    )


def test_times_of_a_trace(tmp_path, capsys):
    net, trace, path = build_model("lenet5", device="host"), Trace(), tmp_path / "trace.json"
    pipeline = bp.Pipeline(net, (2,), trace=trace)
    train(
        pipeline, data(32, (3, 32, 32), 10), bp.SGD(net.parameters, lr=1e-4), Settings(batch_size=8, epochs=1)
    )
    trace.save(path)
    facts = told(capsys, *LENET5, "--ppv", "2", "--stage-times", str(path))
    forward = sorted(end - ready for action, _, ready, end in trace.rows if action[2:4] == (0, 1))
    middle = (forward[1] + forward[2]) / 2
    assert facts["stages"][1]["forward_seconds"] == pytest.approx(middle, rel=1e-3)
    assert len(facts["measured_bubbles"]) == 2 and 0 < min(facts["measured_bubbles"])
    assert main([*LENET5, "--ppv", "2", "--stage-times", str(path)]) == 0
    assert "bubbles measured in the trace, by rank" in capsys.readouterr().out
    line = refused(capsys, *LENET5, "--ppv", "2,3", "--stage-times", str(path))
    assert "the trace has 2 stages, without forward of stage 2: the pipeline has 3" in line


@pytest.mark.parametrize("schedule", ["gpipe", "all"])
def test_pictures(tmp_path, capsys, schedule):
    path = tmp_path / "p.png"
    assert main([*LENET5, "--ppv", "1,2", "--schedule", schedule, "--draw", str(path)]) == 0
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_one_stage(tmp_path, capsys):
    """Nothing is stale, and nobody waits, where there is no cut."""
    facts = told(capsys, *LENET5, "--ppv", "balanced:0", "--draw", str(tmp_path / "p.png"))
    (stale,) = facts["schedules"]
    assert stale["ranks"][0]["bubble"] == pytest.approx(0, abs=1e-9) and facts["stale_share"] == 0
    assert stale["speedup"] == pytest.approx(1) == facts["speedup_limit"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "give --ppv"),
        (["--ppv", "3,2"], "1 0 Conv2d"),
        (["--ppv", "5"], "numbers from 1 to 4 that increase"),
        (["--ppv", "balanced:5"], "5 cuts were asked for"),
        (["--ppv", "1", "--micro-batches", "2"], "2 micro-batches were asked for and the schedule 'stale'"),
        (["--ppv", "1", "--micro-batches", "9", "--schedule", "gpipe"], "9 micro-batches of a batch of 8"),
        (["--ppv", "1", "--draw", "p.bmp"], "names no format of pictures"),
        (["--ppv", "1", "--stage-times", "no/such.json"], "No such file"),
    ],
)
def test_what_is_refused(capsys, options, text):
    assert text in refused(capsys, *LENET5, *options)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "holds no stage times"),
        ("[1]", "holds no stage times"),
        ('{"forward": [1]}', "'backward'"),
        ('{"forward": [1], "backward": [1], "update": [1]}', "times of 1 stages: the pipeline has 2"),
        ('{"forward": [1, 1], "backward": [1], "update": [1, 1]}', "forward 2, backward 1"),
        ('{"forward": [1, NaN], "backward": [1, 1], "update": [1, 1]}', "seconds from 0 on"),
        ('{"traceEvents": [{"cat": "forward"}]}', "holds no stage times"),
    ],
)
def test_files_that_hold_no_times(tmp_path, capsys, content, text):
    path = tmp_path / "times.json"
    path.write_text(content)
    assert text in refused(capsys, *LENET5, "--ppv", "2", "--stage-times", str(path))


def test_sequences_have_a_length(tmp_path, capsys):
    facts = told(capsys, "pipeline", "gru", "--device", "host", "--ppv", "1", "--input-shape", "30,3")
    assert facts["counted"] == ["0 GRU", "1 Linear"]
    path = tmp_path / "model.py"
    path.write_text(
        "import bppsa_cupy as bp\n\n\n"
        "def make(**options):\n"
        "    return bp.Sequential([bp.GRU(2, 3), bp.Linear(3, 4)], (None, 2), device='host')\n"
    )
    assert "leaves the number of steps open" in refused(capsys, "pipeline", f"{path}:make", "--ppv", "1")
