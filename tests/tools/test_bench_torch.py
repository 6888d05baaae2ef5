"""bppsa-bench torch: both sides do the same work, and a small run gives its rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_cases import require_same, run

from bppsa_cupy.tools.benchmarks.torch import ModuleStep, NetworkStep

pytestmark = pytest.mark.long

SIZES = {"device": "host", "steps": 7, "hidden": 4, "batch": 3}


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
def test_all_sides_do_the_same(cell: str, batch_first: bool) -> None:
    modules = [
        ModuleStep(cell=cell, **SIZES, package=package, batch_first=batch_first)
        for package in ("bppsa_cupy.torch", "torch.nn")
    ]
    results = []
    for side in (NetworkStep(cell=cell, **SIZES), *modules):
        for _ in range(2):
            side.reset()
            side.run(lambda quantity: None)
        results.append(side.result())
    require_same(results)


@pytest.mark.usefixtures("pytorch")
def test_a_small_run(tmp_path: Path) -> None:
    step, alone = run("torch", tmp_path, "--against", "none")["rows"]
    assert step["case"] == alone["case"] == "GRU, (T, B, F): T=12 H=4 B=2"
    assert step["quantity"] == "step" and step["against"] == "our network" and step["ratio"] > 0
    assert alone["quantity"] == "autograd alone" and alone["theirs"] is None and alone["ours"] > 0
