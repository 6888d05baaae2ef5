"""bppsa-bench heads: both rivals, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_bench import run

from bppsa_cupy.tools import bench


def test_every_cell_beside_both_rivals(tmp_path: Path) -> None:
    """The stepped layer's gradients are compared with ours before anything is timed."""
    sizes = "--hidden 6 --head-size 2 --batch 3 --steps 5"
    rows = run("heads", tmp_path, *sizes.split())["rows"]
    cases = [f"{cell} H=6, 3 heads, B=3 T=5" for cell in ("gru", "lstm")]
    assert list(dict.fromkeys(row["case"] for row in rows)) == cases
    assert [row["against"] for row in rows[:6]] == (
        ["PyTorch's dense layer, 1 thread"] * 3 + ["stepped by PyTorch, 1 thread"] * 3
    )
    assert all(row["ratio"] == row["theirs"] / row["ours"] for row in rows)


def test_units_that_are_no_whole_number_of_heads(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["heads", "--hidden", "20", "--head-size", "16"]) == 1
    assert "--hidden 20 is no multiple of --head-size 16" in capsys.readouterr().err
