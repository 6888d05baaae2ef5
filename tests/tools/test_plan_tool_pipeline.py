"""bppsa-plan pipeline: what is told of a placement and its schedules, and drawn."""

import json

import pytest

import bppsa_cupy as bp
from bppsa_cupy.models import build_model
from bppsa_cupy.pipeline import SCHEDULES
from bppsa_cupy.pipeline.memory import stage_memory
from bppsa_cupy.tools.plan import main

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
    facts = told(capsys, *LENET5, "--ppv", "1,3")
    assert facts["ppv"] == [1, 3] and len(facts["counted"]) == 5
    placement = bp.Placement(build_model("lenet5", device="host"), (1, 3))
    assert facts["stale_share"] == placement.stale_share
    assert [stage["layers"] for stage in facts["stages"]] == ["1", "2 to 3", "4 to 5"]
    assert tuple(stage["weights"] for stage in facts["stages"]) == placement.weights
    (stale,) = facts["schedules"]
    assert [own["staleness"] for own in stale["stages"]] == [4, 2, 0]
    assert [own["live_passes"] for own in stale["stages"]] == [5, 3, 1]
    memory = stage_memory(placement, "stale", 8)
    assert [own["bytes"]["total"] for own in stale["stages"]] == [own.total for own in memory]


def test_all_schedules_in_one_table(capsys):
    options = [*LENET5, "--ppv", "balanced:2", "--schedule", "all", "--micro-batches", "4"]
    facts = told(capsys, *options)
    assert [schedule["name"] for schedule in facts["schedules"]] == list(SCHEDULES)
    micro = {schedule["name"]: schedule["micro_batches"] for schedule in facts["schedules"]}
    assert micro == {name: 4 if kind.micro else 1 for name, kind in SCHEDULES.items()}
    assert main(options) == 0
    out = capsys.readouterr().out
    missed, memory = out[out.index("\nupdates") :].split("\n\n")
    (of_stale,) = (line.split() for line in missed.splitlines() if line.startswith("  stale "))
    assert " ".join(of_stale) == "stale 4 (5) 2 (3) 0 (1)"
    assert "gpipe of 4" in missed and len(memory.splitlines()) == 2 + len(SCHEDULES)
    assert max(map(len, out.splitlines())) <= 100


def test_what_is_printed(capsys):
    assert main(["pipeline", "resnet20", "--device", "host", "--ppv", "7"]) == 0
    out = capsys.readouterr().out
    for text in (
        "20 counted layers, cut behind 7",
        "5.4 % are stale",
        "58.6 %",
        "8 to 20",
    ):
        assert text in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("schedule", ["gpipe", "all"])
def test_pictures(tmp_path, capsys, schedule):
    path = tmp_path / "p.png"
    assert main([*LENET5, "--ppv", "1,2", "--schedule", schedule, "--draw", str(path)]) == 0
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_one_stage(tmp_path, capsys):
    """Nothing is stale, and nobody waits, where there is no cut."""
    facts = told(capsys, *LENET5, "--ppv", "balanced:0", "--draw", str(tmp_path / "p.png"))
    (stale,) = facts["schedules"]
    assert stale["stages"][0]["staleness"] == 0 == facts["stale_share"]


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
    ],
)
def test_what_is_refused(capsys, options, text):
    assert text in refused(capsys, *LENET5, *options)


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
