"""bppsa-bench pipeline: what it measures, and the sums it makes of it."""

import json

import pytest

from bppsa_cupy.pipeline import Trace, make_schedule
from bppsa_cupy.pipeline.schedules import BACKWARD, FORWARD, Action
from bppsa_cupy.tools import bench
from bppsa_cupy.tools.benchmarks.pipeline_program import (
    idle_cycles,
    idle_share,
    stage_seconds,
)

pytestmark = pytest.mark.long


def test_it_runs(tmp_path, capsys):
    path = tmp_path / "rows.json"
    options = ["--quick", "--schedules", "stale", "gpipe", "--repeats", "1", "--device", "host"]
    assert bench.main(["pipeline", *options, "--json", str(path)]) == 0
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [row["quantity"] for row in rows] == ["step"] + ["step", "speed-up", "idle"] * 2
    assert all(row["ours"] > 0 for row in rows)
    assert rows[2]["theirs"] > 1 and 0 < rows[6]["theirs"] < 1
    assert "2 ranks, gpipe" in capsys.readouterr().out


def row(rank, kind, begun, ready, ended, batch=0):
    return Action(0, kind, rank, batch), begun, ready, ended


def test_sums_of_a_trace():
    trace = Trace(
        [
            row(0, FORWARD, 0.0, 0.0, 2.0),
            row(1, FORWARD, 0.0, 2.0, 3.0),
            row(1, BACKWARD, 3.0, 3.0, 5.0),
            row(0, BACKWARD, 2.0, 5.0, 8.0),
            row(0, FORWARD, 8.0, 8.0, 10.0, batch=1),
        ]
    )
    assert stage_seconds(trace, 2) == [5.0, 3.0]
    assert idle_share(trace, 0) == pytest.approx(0.3) and idle_share(trace, 1) == pytest.approx(0.7)
    for micro, expected in ((1, 0.5), (4, 0.2)):
        assert idle_cycles(make_schedule("gpipe", 2, 3, micro)) == pytest.approx(expected)
