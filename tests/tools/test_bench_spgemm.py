"""bppsa-bench spgemm: its rows, both rivals' values, and what it makes of sizes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from bench_cases import run
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from cupyx_stub import Csr
from symbolic_oracle import random_pattern

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Device
from bppsa_cupy.tools.benchmarks import spgemm, upsweep
from bppsa_cupy.tools.benchmarks.harness import BenchmarkError
from bppsa_cupy.tools.benchmarks.upsweep import (
    CupyxLevel,
    PlannedLevel,
    ScipyLevel,
    UpSweep,
    in_pattern,
    make_network,
    sampled,
)

pytestmark = pytest.mark.long

MODEL = """
import bppsa_cupy as bp

def small(**options):
    layers = [bp.Conv2d(1, 2, 3), bp.ReLU(), bp.Conv2d(2, 3, 3), bp.ReLU(), bp.Conv2d(3, 2, 3), bp.ReLU(),
              bp.MaxPool2d(2), bp.Conv2d(2, 2, 1), bp.Flatten(), bp.Linear(8, 2)]
    return bp.Sequential(layers, input_shape=(1, 10, 10), **options)
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "small.py"
    path.write_text(MODEL, encoding="utf-8")
    return f"{path}:small"


def test_a_small_run(tmp_path: Path) -> None:
    rows = run("spgemm", tmp_path, "--against", "scipy")["rows"]
    timed = [row for row in rows if row["quantity"] == "product"]
    cases = [row["case"] for row in timed]
    assert {"level 0 sum", "level 1 sum", "level 0 sum, zeros left out"} <= set(cases)
    assert len(set(cases)) == len(cases)
    assert all(row["unit"] == "s" and row["against"].startswith("SciPy A @ B") for row in timed)
    assert all("B=2" in row["note"] for row in timed)
    dead = [row for row in rows if row["case"].startswith("dead: ")]
    assert dead and all(row["quantity"] == "multiply-adds" and row["ours"] > 0 for row in dead)
    assert len(timed) + len(dead) == len(rows)


def test_live_and_dead_products_of_both_levels(model: str) -> None:
    sweep = UpSweep(make_network(model, 0.5, "host"), 2)
    # n = 9, from the Linear to the first Conv2d: the segments of algorithm 1 but those that end at 10.
    assert [step.out for step in sweep.level(0)] == [(2, 4), (4, 6), (6, 8)]
    assert [step.out for step in sweep.level(1)] == [(4, 8)]
    assert [step.out for step in sweep.dead] == [(8, 10)]
    assert sweep.label(sweep.level(1)[0]) == "level 1: (Conv2d·ReLU)·(Conv2d·ReLU) from layer 2, row_wise"


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("eliminate_zeros", [False, True])
def test_both_sides_have_the_same_values(model: str, level: int, eliminate_zeros: bool) -> None:
    options = {"model": model, "fraction": 0.5, "device": "host", "batch": 3, "level": level}
    options["samples"] = sampled(3, 2)
    ours, theirs = PlannedLevel(**options), ScipyLevel(**options, eliminate_zeros=eliminate_zeros)
    laps: list[str] = []
    for side in (ours, theirs):
        for _ in range(2):
            side.reset()
            side.run(laps.append)
    assert len(set(laps)) * 4 == len(laps)
    mine, rival = ours.result(), theirs.result()
    assert (mine["batch"], rival["batch"]) == (3, 2)
    assert mine["values"].keys() == rival["values"].keys()
    for name, values in mine["values"].items():
        assert np.any(values)
        np.testing.assert_allclose(values, rival["values"][name], rtol=1e-5, atol=1e-6)


def test_cupyx_and_the_rate_of_a_copy(
    model: str,
    stub: Device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upsweep, "import_cupyx_sparse", lambda: SimpleNamespace(csr_matrix=Csr))
    monkeypatch.setattr(upsweep, "COPIED", 1 << 12)
    options = {"model": model, "fraction": 0.5, "device": stub, "batch": 2, "level": 1, "samples": [1]}
    ours, theirs = PlannedLevel(**options), CupyxLevel(**options)
    for side in (ours, theirs):
        side.run(lambda quantity: None)
    mine, rival = ours.result(), theirs.result()
    for name, values in mine["values"].items():
        np.testing.assert_allclose(values, rival["values"][name], rtol=1e-5, atol=1e-6)
    assert mine["copy_bytes_per_second"] > 0
    measured = SimpleNamespace(result=mine, seconds={"lap": [1e-3, 2e-3, 3e-3]})
    (row,) = spgemm._bandwidth("a case", measured, "lap", 10**6)  # type: ignore[arg-type]
    assert row.ours == pytest.approx(5e8 / mine["copy_bytes_per_second"])


def test_the_batch_is_the_largest_that_fits(model: str) -> None:
    sweep = UpSweep(make_network(model, 0.5, "host"), 2)
    segments = {s for step in sweep.steps for s in (step.left, step.right, step.out)}
    needed = {batch: 4 * sum(sweep.values(s, batch) for s in segments) for batch in (5, 6)}
    assert sweep.fitting_batch(1, 16, needed[6]) == 6
    assert sweep.fitting_batch(1, 16, needed[6] - 1) == 5
    assert sweep.fitting_batch(1, 4, needed[6]) == 4
    with pytest.raises(BenchmarkError, match="level 1 of one sample takes more than the 9 bytes"):
        sweep.fitting_batch(1, 16, 9)


def test_samples_are_spread() -> None:
    assert sampled(16, 2) == [0, 15]
    assert sampled(16, 1) == [0]
    assert sampled(2, 5) == [0, 1]


def test_values_are_found_in_the_pattern_or_refused() -> None:
    generator = np.random.default_rng(0)
    pattern = random_pattern(generator, 9, 7, 0.5)
    values = generator.standard_normal(pattern.nnz) * (generator.random(pattern.nnz) < 0.7)
    matrix = pattern.to_scipy(values.copy())
    matrix.eliminate_zeros()
    shuffled = scipy.sparse.csr_array(matrix[:, ::-1])[:, ::-1].tocsr()
    for form in (matrix, shuffled):
        np.testing.assert_array_equal(in_pattern(form, pattern), values)
    with pytest.raises(BenchmarkError, match="an entry outside"):
        in_pattern(matrix, Pattern((9, 7), np.zeros(10, int), np.zeros(0, int)))
    with pytest.raises(BenchmarkError, match=r"is \(9, 7\), the planned one \(7, 9\)"):
        in_pattern(matrix, Pattern.dense(7, 9))


def test_entries_that_are_there_twice_are_added_and_zeros_outside_are_none() -> None:
    """As in products of cupyx's."""
    pattern = Pattern((2, 3), np.array([0, 1, 2]), np.array([1, 2]))
    twice = scipy.sparse.csr_array(([2.0, 3.0, 0.0, 5.0], [1, 1, 0, 2], [0, 3, 4]), shape=(2, 3))
    np.testing.assert_array_equal(in_pattern(twice, pattern), [5.0, 5.0])
