"""bppsa-bench product: its rows, and both rivals' values."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from bench_cases import run
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from cupyx_stub import Csr

from bppsa_cupy.devices import Device
from bppsa_cupy.tools.benchmarks import product
from bppsa_cupy.tools.benchmarks.harness import Measurement, Row
from bppsa_cupy.tools.benchmarks.product import CupyxProduct, Planned, ScipyProduct
from bppsa_cupy.tools.benchmarks.sparse_matrices import CASES, laplacian, smoothed_prolongation

pytestmark = pytest.mark.long


def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run("product", tmp_path, "--batch", "3")["rows"]
    found = {(row["case"], row["quantity"]): row for row in rows}
    assert len(found) == len(rows) == 3
    timed, planning = (found[f"{next(iter(CASES))}, B=3", name] for name in ("product", "planning"))
    assert timed["against"] == "SciPy A @ B"
    assert planning["ours"] > 0 and "paid" in planning["note"]
    assert found["geometric mean, B=3", "ratio"]["ours"] == pytest.approx(timed["ratio"])
    assert "geometric mean, B=3" in capsys.readouterr().out


def test_rows_of_times() -> None:
    assert product._mean_row(3, [2.0, 4.0, 8.0]).ours == pytest.approx(4)
    ours = Measurement(result={"planning": [0.3, 0.1, 0.2]})
    for theirs, note in (
        (0.0151, "paid after 10 calls of B=2"),
        (0.005, "not paid by any calls"),
        (None, None),
    ):
        row = product._planning_row("a case", ours, Row("a case", "product", 0.005, theirs), 2)
        assert (row.ours, row.note) == (0.2, note)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("batch", [1, 3])
def test_both_sides_have_the_same_values(case: str, batch: int) -> None:
    options = {"case": case, "side": 7, "dtype": "float64", "device": "host", "batch": batch}
    ours, theirs = (side(**options, samples=[0, batch - 1]) for side in (Planned, ScipyProduct))
    for side in (ours, theirs):
        side.run(lambda quantity: None)
    values = ours.result()["values"]
    assert np.any(values)
    np.testing.assert_allclose(values, theirs.result()["values"], rtol=1e-13, atol=1e-13)


def test_cupyx(stub: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "import_cupyx_sparse", lambda: SimpleNamespace(csr_matrix=Csr))
    options = {"case": "Galerkin A·P", "side": 6, "dtype": "float64", "device": stub, "batch": 2}
    ours, theirs = Planned(**options, samples=[1]), CupyxProduct(**options, samples=[1])
    for side in (ours, theirs):
        side.run(lambda quantity: None)
    np.testing.assert_allclose(ours.result()["values"], theirs.result()["values"], rtol=1e-13)


def test_the_matrices() -> None:
    a = laplacian(3).toarray()
    expected = np.diag([4.0] * 9) - np.diag([1, 1, 0] * 2 + [1, 1], 1) - np.diag([1, 1, 0] * 2 + [1, 1], -1)
    np.testing.assert_array_equal(a, expected - np.diag([1.0] * 6, 3) - np.diag([1.0] * 6, -3))
    # Prolongation keeps a constant where no boundary is near: rows of P sum to 1 there.
    sums = smoothed_prolongation(laplacian(9), 9).sum(axis=1).reshape(9, 9)
    np.testing.assert_allclose(sums[1:-1, 1:-1], 1)
    assert (sums[0] < 1).all()
    for factory in CASES.values():
        first, second = factory(5)
        assert first.shape[1] == second.shape[0] and first.has_canonical_format
