"""bppsa-bench jax: all sides do the same work, and a small run gives its rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_cases import require_same, run
from jax_cases import jax  # noqa: F401  skips without JAX

from bppsa_cupy.tools.benchmarks.jax import FunctionStep, ScanStep
from bppsa_cupy.tools.benchmarks.torch import NetworkStep

pytestmark = pytest.mark.long


@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn"])
def test_all_sides_do_the_same(cell: str) -> None:
    results = []
    for side in (NetworkStep, FunctionStep, ScanStep):
        step = side(cell=cell, device="host", steps=7, hidden=4, batch=3)
        step.run(lambda quantity: None)
        results.append(step.result())
    require_same(results)


def test_a_small_run(tmp_path: Path) -> None:
    report = run("jax", tmp_path)
    network, scan = report["rows"]
    assert network["case"] == scan["case"] == "GRU: T=12 H=4 B=2"
    assert network["against"] == "our network" and scan["against"] == "jax.lax.scan"
    assert all(row["quantity"] == "step" and row["ratio"] > 0 for row in report["rows"])
    assert report["versions"]["jax"] and report["versions"]["jaxlib"]
