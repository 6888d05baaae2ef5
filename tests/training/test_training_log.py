"""The log of training: kept until there is a row, resumed without the rows that come again."""

import json

import pytest

import bppsa_cupy as bp
from bppsa_cupy.training.loop import TrainingLog

ROWS = [{"step": step, "loss": 1 / step} for step in range(1, 5)]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("step", range(5))
def test_resuming_drops_the_rows_after_its_step(path, step):
    with TrainingLog(path, step) as log:
        for row in ROWS[step:]:
            log.write(row)
    assert rows(path) == ROWS
    assert [file.name for file in path.parent.iterdir()] == ["log.jsonl"]


@pytest.mark.parametrize("text", ["my notes\n", '{"step": 1}\nmy notes\n{"step": 2}\n'])
def test_a_file_that_is_no_log_stays(path, text):
    path.write_text(text, encoding="utf-8")
    with pytest.raises(bp.DataError):
        TrainingLog(path, 4)
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("end", ["{", '{"step": 5, "lo', "\xff", '{"loss": 1}', "5"])
def test_a_last_line_that_was_cut_is_dropped(path, end):
    with path.open("a", encoding="latin-1") as file:
        file.write(end)
    with TrainingLog(path, 4) as log:
        log.write({"step": 5})
    assert rows(path) == [*ROWS, {"step": 5}]
