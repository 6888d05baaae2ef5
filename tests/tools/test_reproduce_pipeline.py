"""bppsa-reproduce pipeline: the runs of each table, results that are kept and gone on from."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from bppsa_cupy.data import Split
from bppsa_cupy.tools.reproduce import main, parser
from bppsa_cupy.tools.reproduction import stale_weights
from bppsa_cupy.tools.reproduction import stale_weights_runs as cases
from bppsa_cupy.tools.reproduction.stale_weights import summary

COMMAND = ["pipeline", "--table", "digits", "--rows", "4 stages, lr 0.01", "--epochs", "1"]


def test_results_are_kept_and_gone_on_from(tmp_path, capsys):
    assert main([*COMMAND, "--out", str(tmp_path)]) == 0
    path = tmp_path / "pipeline-digits.json"
    first = json.loads(path.read_text(encoding="utf-8"))
    assert first["command"].startswith("bppsa-reproduce pipeline --table digits")
    (run,) = first["runs"]
    assert (run["row"], run["steps"], run["ppv"], run["seed"]) == ("4 stages, lr 0.01", 45, [1], 0)
    assert run["accuracy"] == run["curve"][-1][1] > 40 and run["curve"][-1][0] == 45
    assert f"{run['accuracy']:.2f} %" in capsys.readouterr().out
    assert (tmp_path / "pipeline-digits.png").read_bytes().startswith(b"\x89PNG")
    assert main([*COMMAND, "--seeds", "2", "--out", str(tmp_path)]) == 0
    again = json.loads(path.read_text(encoding="utf-8"))["runs"]
    assert again[0] == run and [one["seed"] for one in again] == [0, 1]


def test_a_run_that_diverges_is_told(tmp_path, capsys, monkeypatch):
    wild = cases.make_run("wild", "lenet5", data="digits", ppv=(1,), steps=90, optimizer={"lr": 1e20})
    monkeypatch.setitem(cases.TABLES, "digits", lambda: iter([wild]))
    assert main(["pipeline", "--table", "digits", "--out", str(tmp_path), "--device", "host"]) == 0
    (run,) = json.loads((tmp_path / "pipeline-digits.json").read_text(encoding="utf-8"))["runs"]
    assert run["accuracy"] is None and "step" in run["diverged"]
    assert "wild" in capsys.readouterr().out


def test_shorter_runs_keep_their_proportions():
    data = SimpleNamespace(
        input_shape=(3, 32, 32), train=Split(np.zeros((10000, 1)), np.zeros(10000, int), None)
    )
    arguments = parser().parse_args(["pipeline", "--table", "4", "--data", "cifar10", "--epochs", "8"])
    runs = [(one.after, one.steps) for one in stale_weights._wanted(arguments, data)]
    assert runs == [(None, 632), (None, 632), (421, 632), (421, 842)]


def test_table_6(tmp_path, capsys):
    assert main(["pipeline", "--table", "6", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "pipeline-6.json").read_text(encoding="utf-8"))["rows"]
    assert [round(row["increase_percent"], 1) for row in rows] == [58.6, 57.7, 57.4, 57.3, 57.2]
    for row in rows:
        assert round(row["weights"], 2) == row["paper"]["weights"]
        assert abs(row["activations"] / row["paper"]["activations"] - 1) < 0.08
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["resnet20", "7", "3.63", "MiB"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--table", "2"], "table 2 takes --data"),
        (["--table", "digits", "--rows", "no such row"], "no such row for data of shape (1, 32, 32)"),
        (["--table", "2", "--data", "/no/data"], "/no/data"),
    ],
)
def test_an_error_is_one_line(arguments, words, tmp_path, capsys):
    assert main(["pipeline", *arguments, "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and words in error


def test_a_file_of_other_results_is_left_alone(tmp_path, capsys):
    path = tmp_path / "pipeline-digits.json"
    path.write_text('{"runs": [{"row": "?"}]}', encoding="utf-8")
    assert main([*COMMAND, "--out", str(tmp_path)]) == 1
    assert "holds no results of this command" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == '{"runs": [{"row": "?"}]}'


def test_the_tables_of_the_paper():
    plain = list(cases.table2(beside=False))
    assert [(run.model, run.stages, run.paper) for run in plain] == [
        (model, stages, paper) for model, row in cases.TABLE2.items() for stages, paper in row.items()
    ]
    assert {run.ppv for run in plain if run.model == "vgg16"} == {(), (2,), (2, 4), (2, 4, 7), (2, 4, 7, 10)}
    assert len(list(cases.table2())) == 4 + 5 * (4 + 3 + 4 + 3)
    ppvs = [run.ppv for run in cases.table3() if run.optimizer["lr"] == 0.01]
    assert ppvs[1] == (3, 5, 7) and ppvs[-1] == tuple(range(3, 20, 2)) and len(ppvs) == 8
    assert [run.after for run in cases.table4()] == [None, None, 20000, 20000]
    assert [run.row for run in cases.table5()][:3] == ["non-pipelined", "pipelined", "hybrid"]


def test_a_summary_is_over_seeds():
    common = {
        "model": "lenet5", "row": "4 stages", "paper": 98.64, "stale_percent": 0.3, "curve": [], "ppv": [1],
        "schedule": "stale", "predict": True, "after": 7, "optimizer": {"lr": 0.01},
    }  # fmt: skip
    (row,) = summary([{**common, "accuracy": 98.0}, {**common, "accuracy": None}])
    assert (row["panel"], row["stages"], row["way"]) == ("lenet5, lr 0.01", 4, "stale predicted hybrid")
    assert row["mean"] == 49.0 and row["accuracies"] == [98.0, 0.0] and row["paper"] == 98.64
