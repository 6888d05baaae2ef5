"""Benchmarks as a test runs them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bppsa_cupy.tools import bench

FIELDS = {"case", "quantity", "ours", "theirs", "against", "unit", "ratio", "spread"}


def require_same(results: list[dict]) -> None:
    """The sides of a benchmark have the same arrays by name."""
    ours, *others = results
    for other in others:
        assert other.keys() == ours.keys()
        assert all(np.allclose(other[name], ours[name], atol=1e-5) for name in ours)


def run(name: str, path: Path, *options: str) -> dict:
    """The JSON of a small run on the host."""
    file = path / "rows.json"
    assert (
        bench.main([name, "--device", "host", "--quick", "--threads", "1", "--json", str(file), *options])
        == 0
    )
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report.keys() == {"name", "command", "device", "machine", "versions", "rows"}
    assert report["name"] == name and report["device"] == "host"
    assert report["command"] == " ".join(["bppsa-bench", name, "--device host --quick --threads 1", *options])
    assert report["machine"].keys() == {"cpu", "cores", "threads", "gpu"}
    for row in report["rows"]:
        assert row.keys() - {"paper", "note"} == FIELDS
        if row["unit"] == "s":
            assert row["ours"] > 0 and len(row["spread"]["ours"]) == 2
            if row["theirs"] is not None:
                assert row["ratio"] == pytest.approx(row["theirs"] / row["ours"])
    return report
