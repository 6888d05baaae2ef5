"""bppsa-bench calibrate on a GPU: what it measures of passes over time is kept, checked, and chosen by."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cupy_stub_streams
import pytest
from cupy_fixtures import no_device_is_kept, stub  # noqa: F401  fixtures
from timed_gpu import TimedGpu

from bppsa_cupy.devices.cuda import CudaDevice
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.cost import MODELS, find_model, model_to_json
from bppsa_cupy.processors.calibration import fields_from_json
from bppsa_cupy.processors.models import H200, model_of
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.system import calibration
from bppsa_cupy.system.calibration import Calibration, load_calibration, load_part, save_calibration
from bppsa_cupy.timescan import WalkSize, cost
from bppsa_cupy.timescan.forward import choose_forward
from bppsa_cupy.tools import bench
from bppsa_cupy.tools.benchmarks import calibrate, calibration_walks
from bppsa_cupy.tools.benchmarks.calibration_walks import cases

pytestmark = pytest.mark.long

PLANNER = replace(MODELS["cuda"], seconds_per_launch=3e-6)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a GPU's calibration, which is not there."""
    path = tmp_path / "kept" / "cuda.json"
    for module in (calibration, calibrate):
        monkeypatch.setattr(module, "calibration_path", lambda device: path)
    return path


def keep(model: Any = None, walks: Any = None) -> None:
    machine = calibration.this_machine("cuda")
    save_calibration(Calibration("cuda", machine, {}, "2026-01-01", model, walks))


def seal(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the file's content, under a seal that fits."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content.pop("sha256")
    change(content)
    path.write_text(json.dumps({**content, "sha256": calibration._digest(content)}), encoding="utf-8")


# ---- kept ----


def test_what_is_kept_is_what_is_used() -> None:
    measured = replace(H200, launch=4e-6, memory=3e12, factors={"scan": 1.5, "backward busy": 0.7})
    keep(walks=measured.measured)
    gpu = TimedGpu(H200)
    assert model_of(gpu) == measured and model_of(gpu).label == "cuda"
    assert find_model("cuda") == MODELS["cuda"], "the planner's own was not measured"


def test_a_file_of_the_version_before_has_no_walks(place: Path) -> None:
    keep(model_to_json(PLANNER))
    seal(place, lambda content: (content.update(format_version=2), content.pop("walks")))
    assert load_calibration("cuda").walks is None and find_model("cuda") == PLANNER
    assert model_of(TimedGpu(H200)).label == "cuda, uncalibrated"


@pytest.mark.parametrize(
    "change, complaint",
    [
        (lambda walks: walks.pop("following"), "KeyError: following"),
        (lambda walks: walks.update(launch=-1e-6), "-1e-06 is no number of seconds"),
        (lambda walks: walks.update(cache=0), "0 is no rate"),
        (lambda walks: walks.update(memory="quick"), "quick"),
        (lambda walks: walks.update(memory=10**400), "OverflowError"),
        (lambda walks: walks.update(factors=None), "TypeError"),
        (lambda walks: walks["factors"].update(sideways=1.0), "no kind of kernel is called 'sideways'"),
        (lambda walks: walks["factors"].update(scan=-1.0), "-1.0 is no factor"),
        (lambda walks: walks["factors"].update(scan=math.inf), "inf is no factor"),
    ],
)
def test_numbers_that_are_none_are_refused_by_name_and_the_estimates_serve(
    place: Path, change: Callable[[dict[str, Any]], Any], complaint: str
) -> None:
    keep(model_to_json(PLANNER), replace(H200, factors={"scan": 1.5}).measured)
    seal(place, lambda content: change(content["walks"]))
    with pytest.raises(PlanError, match=rf"cuda\.json: it is no bppsa-cost-model file \(.*{complaint}"):
        load_part("cuda", "walks", fields_from_json)
    with pytest.warns(RuntimeWarning, match=f"{complaint}.*run bppsa-bench calibrate --device cuda"):
        assert model_of(TimedGpu(H200)) == H200
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model_of(TimedGpu(H200)) == H200 and find_model("cuda") == PLANNER


def test_a_file_that_is_damaged_is_refused_whole(place: Path) -> None:
    keep(model_to_json(PLANNER), H200.measured)
    place.write_text(place.read_text(encoding="utf-8").replace('"launch"', '"lunch"'), encoding="utf-8")
    with pytest.raises(PlanError, match=r"cuda\.json: its SHA-256 is not that of its content"):
        load_part("cuda", "walks", fields_from_json)
    with pytest.warns(RuntimeWarning, match="SHA-256"):
        assert model_of(TimedGpu(H200)) == H200


# ---- chosen by ----


def test_the_way_back_is_that_of_the_kept_numbers() -> None:
    gpu, size = TimedGpu(H200), WalkSize(FORMS["rnn_tanh"], 1000, 16, 20, 4)
    assert cost.choose(model_of(gpu), size).method == "serial"
    keep(walks=replace(H200, factors={"backward": 2.0}).measured)
    choice = cost.choose(model_of(gpu), size)
    assert choice.method == "chunked" and choice.reason == "the quickest predicted on cuda"
    assert choice.serial_seconds == pytest.approx(2 * H200.walk_seconds(size, "backward", 1), rel=0.1)


def test_the_way_forward_is_that_of_the_kept_numbers() -> None:
    gpu, size = TimedGpu(H200), WalkSize(FORMS["rnn_tanh"], 60000, 16, 20, 4)
    assert choose_forward(gpu, size)[0]
    keep(walks=replace(H200, factors={"reduce": 50.0}).measured)
    chunk, reason = choose_forward(gpu, size)
    assert chunk == 0 and reason.endswith("by Newton's iteration on cuda")


@pytest.mark.parametrize("factors", [{"step": 9.0}, {"backward in memory": 0.2}])
def test_whether_a_step_is_a_launch_follows_the_kept_numbers(factors: dict[str, float]) -> None:
    gpu, size = TimedGpu(H200), WalkSize(FORMS["rnn_tanh"], 1000, 1, 300, 4)
    assert model_of(gpu).goes_by_steps(size, "backward")
    keep(walks=replace(H200, factors=factors).measured)
    assert not model_of(gpu).goes_by_steps(size, "backward")


# ---- the command ----


def test_the_walks_of_the_stand_in_are_measured_kept_and_shown(
    stub: CudaDevice,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    keep(model_to_json(PLANNER))
    monkeypatch.setattr(calibrate, "cases", lambda quick: cases(quick=True))
    monkeypatch.setattr(calibration_walks, "GRAPH_SECONDS", 5e-3)

    def rows(*options: str) -> dict[tuple[str, str], float]:
        path = tmp_path / "rows.json"
        words = ["calibrate", "--device", "cuda", "--threads", "1", "--json", str(path), *options]
        assert bench.main(words) == 0
        found = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return {(row["case"], row["quantity"]): row["ours"] for row in found}

    assert rows("--walks", "--dry-run") and load_calibration("cuda").walks is None
    graphs = len(cupy_stub_streams.Graph.made)
    found = rows("--walks")
    assert [len(graph.capture.nodes) for graph in cupy_stub_streams.Graph.made[graphs:]] == 3 * [5]
    assert f"kept in {place}" in capsys.readouterr().err
    kept, model = load_calibration("cuda"), model_of(stub)
    assert kept.walks == model.measured and find_model("cuda") == PLANNER, "the planner's is as it was"
    classes = {"forward", "backward", "reduce", "scan", "step"}
    assert model.factors.keys() == classes and min(model.factors.values()) > 0
    for name in classes:
        assert found[f"cuda walks {name}", "factor"] == model.factors[name]
        assert found[f"cuda walks {name}", "predicted / measured"] == pytest.approx(1.0, rel=0.1)
    assert found["cuda walks", "launch"] == model.launch == 1e-3, "events of the stand-in are 1 ms apart"
    shown = rows("--show")
    assert "cuda: products and layers and passes over time measured 20" in capsys.readouterr().err
    assert shown["cuda", "launch"] == 3e-6 and shown["cuda walks", "cache"] == model.cache / 1e9

    place.unlink()
    monkeypatch.setattr(calibrate, "_measure_work", lambda device, quick: (PLANNER, []))
    assert {("cuda", "launch"), ("cuda walks", "launch")} <= rows().keys(), (
        "without --walks both are measured"
    )
    assert find_model("cuda") == PLANNER and model_of(stub).factors.keys() == classes


def test_the_host_has_no_walks_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["calibrate", "--device", "host", "--walks"]) == 1
    assert "the device is host: give --device cuda" in capsys.readouterr().err
