"""The programs of `make fuzz` and `make faults`: they find what is there, and a short run finds nothing."""

import base64
import os
import re
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from faulting.commands import COMMANDS
from faulting.running import Peace
from faulting.stops import OLD, half_written
from fuzzing import arguments, files
from fuzzing.calls import calls
from fuzzing.children import play_all
from fuzzing.edits import apply, draw_edits, fewest
from fuzzing.judging import judge

from bppsa_cupy.errors import DataError
from bppsa_cupy.training.checkpoint import Checkpoint, save_checkpoint

pytestmark = pytest.mark.long

CHECKS = Path(__file__).parents[2] / "tools" / "instruments" / "checks"


def program(name, *arguments):
    """What a program prints, and its exit code."""
    command = [sys.executable, str(CHECKS / name), *arguments]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
    return ended.stdout, ended.returncode


@pytest.mark.parametrize("subject", ["files", "arguments"])
def test_some_cases_end_well(subject, tmp_path):
    said, code = program(
        "fuzz.py", "1", "--only", subject, "--cases", "60", "--seed", "1", "--out", str(tmp_path)
    )
    assert code == 0, said
    assert re.search(rf"{subject}, seed 1: 60 tried, \d+ refused, \d+ accepted, \d+ explained, 0 unex", said)


def test_a_kill_ends_well():
    said, code = program("faults.py", "2", "--seed", "1", "--only", "kill", "--command", "data bitstream")
    assert code == 0, said
    assert "seed 1: 2 tried, 0 wrong" in said


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_case_that_ends_its_process_is_told():
    def play(index):
        if index == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if index == 3:
            while True:
                pass
        return ("accepted", str(os.getpid()))

    played = list(play_all(play, range(6), 0.5))
    assert [one.outcome for one in played] == [
        *("accepted", "died", "accepted", "endless", "accepted", "accepted")
    ]
    assert played[1].detail == "SIGKILL"
    assert played[4].detail == played[5].detail != played[2].detail


def test_what_is_wrong_is_told():
    def refuse(text):
        raise DataError(text)

    assert judge(lambda: refuse("a.npz is cut"), "a.npz") == ("refused", "a.npz is cut")
    assert judge(lambda: refuse("it is cut"), "a.npz")[1].startswith("the error does not name 'a.npz'")
    assert judge(lambda: {}["a.npz"], "a.npz")[0] == "wrong"
    assert judge(lambda: 1, "a.npz") == ("accepted", "")


def written(template, **given):
    """Run the one test that a template gives."""
    names = {}
    exec(compile(template.format(seed=1, index=2, **given), "a test that was written", "exec"), names)
    return next(value for name, value in names.items() if name.startswith("test_"))


def test_a_call_that_fails_is_written_as_a_test(tmp_path):
    test = written(arguments.TEST, name="Linear", texts={"in_features": "given['in_features'] + 0.5"})
    test(tmp_path)
    with pytest.raises(StopIteration):
        written(arguments.TEST, name="No such call", texts={})(tmp_path)
    assert arguments.play("Linear", {"in_features": "-1"}, tmp_path)[0] == "refused"
    assert arguments.play("RateSchedule", {"text": "'cosine'"}, tmp_path) == ("accepted", "")


def test_a_file_that_fails_is_written_as_a_test(tmp_path, monkeypatch):
    text = base64.b85encode(zlib.compress(b"RIFF")).decode()
    written(files.TEST, name="clip.wav", lines=f'    "{text}"\n')(tmp_path)
    monkeypatch.setattr(files, "judge", lambda read, name: ("wrong", "it hangs"))
    with pytest.raises(AssertionError, match="it hangs"):
        written(files.TEST, name="clip.wav", lines=f'    "{text}"\n')(tmp_path)


def test_every_call_is_taken_as_it_is_given(tmp_path):
    for call in calls(tmp_path):
        assert arguments.play_call(call, {}, tmp_path) == ("accepted", ""), call.name


def test_a_file_that_is_half_written_is_told(tmp_path):
    train = next(command for command in COMMANDS if command.name == "train")
    state = Checkpoint({}, "float32", {"w": np.ones(3)})
    save_checkpoint(tmp_path / "c.h5", state)
    (tmp_path / "l.jsonl").write_bytes(b"one line\n")
    epochs = (b"another epoch's", (tmp_path / "c.h5").read_bytes())
    peace = Peace({"c.h5": b"the last", "l.jsonl": b"one line\nanother\n"}, epochs, (), 1.0)
    assert half_written(train, peace, tmp_path, old=False) == ""
    (tmp_path / "l.jsonl").write_bytes(b"one line\nan\n")
    assert half_written(train, peace, tmp_path, old=False) == "l.jsonl is half written"
    save_checkpoint(tmp_path / "c.h5", Checkpoint({}, "float32", {"w": np.zeros(3)}))  # whole, and no epoch's
    assert half_written(train, peace, tmp_path, old=False).startswith("c.h5 is half written")
    (tmp_path / "c.h5").write_bytes(OLD)
    assert half_written(train, peace, tmp_path, old=False).startswith("c.h5 is half written")
    assert half_written(train, peace, tmp_path, old=True) == "l.jsonl is half written"


def test_edits_change_what_they_say():
    assert apply(b"abcdef", [(1, 2, b"X"), (3, 0, b"YZ"), (5, 9, b"")]) == b"aXdYZ"
    content = bytes(range(256))
    for seed in range(50):
        edits = draw_edits(np.random.default_rng(seed), content, 100)
        assert apply(content, edits)[:100] == content[:100]


def test_the_fewest_edits_still_fail():
    assert fewest([1, 2, 3, 4, 5], lambda some: {2, 4} <= set(some)) == [2, 4]
    assert fewest([7], lambda some: True) == [7]
