"""The demo runs from data to pictures, and fails where its results are not what they must be."""

import json

import pytest

from bppsa_cupy.errors import BppsaError
from bppsa_cupy.plan import Plan
from bppsa_cupy.records.file import load_jacobians
from bppsa_cupy.tools import demo

FILES = {"plan.h5", "schedule.png", "lenet5.h5", "log.jsonl", "loss.png", "jacobians.h5", "jacobians.png"}


def test_the_demo_makes_what_it_says(tmp_path, capsys):
    assert demo.main(["--iterations", "20", "--device", "host", "--output", str(tmp_path / "made")]) == 0
    printed = capsys.readouterr()
    summary = printed.out.partition("Summary\n")[2]
    for name in ("test accuracy", "test loss", "gradients", "input gradient", "training", "in all"):
        assert f"\n  {name} " in summary
    assert printed.err == ""
    folder = tmp_path / "made"
    assert {path.name for path in folder.iterdir()} == FILES
    assert all(name in summary for name in FILES)
    for picture in folder.glob("*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")
    assert Plan.load(folder / "plan.h5").schedules == ("linear", "blelloch", "hybrid")
    assert len(load_jacobians(folder / "jacobians.h5")) == 11
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 20
    assert rows[-1]["loss"] < rows[0]["loss"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, 1e-9), "gradients differ by 1.0e-09"),
        ((0.93, 1e-16), "test accuracy is 93.0%: at least 95% is right"),
    ],
)
def test_wrong_results_are_an_error(arguments, message):
    with pytest.raises(BppsaError, match=message):
        demo.check(*arguments)


def test_a_run_that_was_stopped_is_not_held_to_the_accuracy():
    demo.check(None, 1e-16)
