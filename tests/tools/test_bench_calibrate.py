"""bppsa-bench calibrate: it times every kind of work, keeps the model, shows it, and the planner uses it."""

import json
import math

import numpy as np
import pytest

from bppsa_cupy.devices import get_device
from bppsa_cupy.plan.cost.models import MODELS, find_model
from bppsa_cupy.system import calibration
from bppsa_cupy.tools import bench
from bppsa_cupy.tools.benchmarks import calibrate
from bppsa_cupy.tools.benchmarks.calibration_work import networks, observe, overheads

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "calibration_path", lambda device: tmp_path / "kept" / f"{device}.json")
    monkeypatch.setattr(calibrate, "calibration_path", calibration.calibration_path)
    return tmp_path / "kept"


def rows_of(tmp_path, *options):
    path = tmp_path / "rows.json"
    assert bench.main(["calibrate", "--device", "host", "--json", str(path), *options]) == 0
    return {
        (row["case"], row["quantity"]): row["ours"]
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]
    }


def test_every_layer_and_product_is_timed():
    (network,) = networks(get_device("host"), quick=True)
    found = list(observe(network, 2, 0.0))
    # 6 elements; 5 pairs of neighbours, of them 3 pairs with a product and a product times a vector.
    kinds = [o.kind for o in found]
    assert kinds.count("vjp") == kinds.count("fill") == kinds.count("transpose") == 6
    assert kinds.count("csr_mv") == 6 + 3
    assert {"scale_rows", "scale_columns", "select_rows", "dense"} <= set(kinds)
    assert all(o.seconds > 0 and o.bytes > 0 for o in found)
    mv = next(o for o in found if o.kind == "csr_mv")
    assert (mv.multiply_adds, mv.width) == (2 * 16, 2)


def test_shared_products_are_of_one_sample():
    (network,) = networks(get_device("host"), quick=True)
    widths = {o.width for o in observe(network, 3, 0.0) if o.kind not in ("vjp", "fill", "transpose")}
    assert widths == {3}
    per_launch, per_call = overheads(get_device("host"), 0.0)
    assert 0 < per_launch < 1 and 0 < per_call < 1


def test_a_model_is_measured_kept_shown_and_used(tmp_path, cache, capsys, monkeypatch):
    monkeypatch.setattr(calibrate, "networks", lambda device, quick: networks(device, True))
    monkeypatch.setattr(calibrate, "BATCHES", (2,))
    rows = rows_of(tmp_path, "--threads", "1")
    assert str(cache) in capsys.readouterr().err
    model = find_model("host")
    assert model != MODELS["host"] and "csr_mv" in model.rates and "vjp" in model.rates
    assert rows["host", "launch"] == model.seconds_per_launch
    rate = model.rates["csr_mv"]
    for quantity, value in (
        ("multiply-adds", rate.multiply_adds_per_second),
        ("bytes", rate.bytes_per_second),
    ):
        assert rows.get(("host csr_mv", quantity), math.inf) == pytest.approx(value / 1e9)
    shown = rows_of(tmp_path, "--show", "--threads", "1")
    assert "measured 20" in capsys.readouterr().err
    assert shown.items() <= rows.items()


@pytest.mark.parametrize("options", [("--quick",), ("--dry-run", "--quick")])
def test_rough_numbers_and_dry_runs_are_not_kept(tmp_path, cache, options):
    assert rows_of(tmp_path, *options)["host", "call"] > 0
    assert not cache.exists()


@pytest.mark.filterwarnings("default:.*built-in:RuntimeWarning")
def test_the_built_in_estimates_are_shown_where_nothing_is_kept(tmp_path, cache, capsys):
    shown = rows_of(tmp_path, "--show")
    assert "built-in estimates (none is kept)" in capsys.readouterr().err
    assert shown["host", "launch"] == MODELS["host"].seconds_per_launch
    cache.mkdir()
    calibration.calibration_path("host").write_text("damaged", encoding="utf-8")
    assert rows_of(tmp_path, "--show") == shown
    said = capsys.readouterr().err
    assert said.startswith("warning: ") and "it is no bppsa-cost-model file" in said
    assert np.isfinite(shown["host", "call"])
