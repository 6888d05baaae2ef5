"""bppsa-bench: every benchmark runs small and its sides agree; the harness times what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from marks import some

from bppsa_cupy.tools import bench
from bppsa_cupy.tools.benchmarks import TABLE
from bppsa_cupy.tools.benchmarks.harness import OVERALL

FIELDS = {"case", "quantity", "ours", "theirs", "against", "unit", "ratio", "spread"}
#: More options of the smoke test.
OPTIONS = {
    "jacobians": ("--autograd-columns", "3"),
    "linear": ("--against", "torch", "jax"),
    "programs": ("--like", "neurogym"),
    "recurrent": ("--against", "torch", "jax"),
    "train": ("--prune", "0", "0.9", "--methods", "bp", "hybrid", "--dtype", "float64"),
    "pipeline": ("--pipelines", "stale", "1f1b"),
    "warm": ("rnn",),
}
QUICK = ("product",)


def run_bench(name: str, folder: Path, *options: str) -> list[dict[str, Any]]:
    """The rows of a small run on the host."""
    file = folder / "rows.json"
    small = () if name == "warm" else ("--quick", "--threads", "1")
    assert bench.main([name, "--device", "host", "-o", str(file), *small, *options]) == 0
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report.keys() == {"name", "command", "device", "machine", "versions", "rows"}
    assert report["command"].startswith(f"bppsa-bench {name} ") and "/" not in report["command"]
    return report["rows"]


@pytest.mark.parametrize("name", some(*QUICK, long=[name for name in TABLE if name not in QUICK]))
@pytest.mark.usefixtures("pytorch")
def test_a_benchmark_runs(name: str, tmp_path: Path) -> None:
    rows = run_bench(name, tmp_path, *OPTIONS.get(name, ()))
    assert rows
    for row in rows:
        assert row.keys() - {"paper", "note"} == FIELDS
        if row["unit"] == "s" and row["theirs"] is not None:
            assert row["ours"] > 0 and row["ratio"] == pytest.approx(row["theirs"] / row["ours"])


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_inference_without_a_rival_and_chosen_cases(tmp_path: Path) -> None:
    rows = run_bench("recurrent", tmp_path, "--inference", "--against", "none", "--like", "gru")
    assert [(row["case"], row["quantity"], row["theirs"]) for row in rows] == [
        ("gru H=20 B=1 T=12 inference", OVERALL, None)
    ]
    assert bench.main(["rnn", "--device", "host", "--quick", "--like", "no such case"]) == 1


def test_guaranteed_sparsity_is_the_papers() -> None:
    from bppsa_cupy.tools.benchmarks.jacobians import sizes

    rows = {(row.case.split()[1], row.quantity): row for row in sizes()}
    for name in ("Conv2d", "ReLU", "MaxPool2d"):
        row = rows[name, "guaranteed sparsity"]
        assert row.ours == pytest.approx(row.paper, abs=1e-5)
    assert rows["Conv2d", "guaranteed sparsity"].theirs == 1 - 9 / 1024
    assert rows["Conv2d", "nnz"].ours == 1696512 and rows["MaxPool2d", "nnz"].ours == 65536


# ---- harness ----
