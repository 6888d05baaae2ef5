"""bppsa-bench calibrate --ranks: the link between two ranks is measured, kept and used by the planner."""

import json
import math
from dataclasses import replace

import mpi
import numba
import pytest

from bppsa_cupy.plan.cost import model_from_json, model_to_json
from bppsa_cupy.plan.cost.models import MODELS, find_model
from bppsa_cupy.plan.cost_model import Link
from bppsa_cupy.system import calibration
from bppsa_cupy.system.calibration import Calibration, load_calibration, save_calibration, this_machine
from bppsa_cupy.tools import bench

pytestmark = pytest.mark.long

COMMAND = ("-m", "bppsa_cupy.tools.bench", "calibrate", "--ranks", "--device", "host", "--threads", "1")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Where processes started from here, of one thread, keep the constants of the host."""
    path = tmp_path / "bppsa-cupy" / "cost-models" / "host-1-threads.json"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibration, "calibration_path", lambda device: path)
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    yield path
    numba.set_num_threads(threads)


def failed(size):
    ended = mpi.finish(mpi.start(size, *COMMAND))
    assert ended.returncode == 1
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    return line


def test_the_link_is_measured_kept_and_used(tmp_path, cache):
    assert "run bppsa-bench calibrate --device host first" in failed(2)
    model = replace(MODELS["host"], seconds_per_call=1.25e-5, link=Link(0.0, math.inf))
    walks = {"kept": "as they are"}
    kept = Calibration("host", this_machine("host"), {}, "2026-01-01", model_to_json(model), walks)
    save_calibration(kept)
    answer = tmp_path / "rows.json"
    ended = mpi.run(2, *COMMAND, "--json", answer)
    assert str(cache) in ended.stderr and ended.stdout.count("latency") == 1
    link = find_model("host").link
    assert 0 < link.latency < 0.1 and 1e6 < link.bytes_per_second < 1e13
    now = load_calibration("host")
    assert model_from_json("host", now.model) == replace(model, link=link) and now.walks == walks
    rows = {row["quantity"]: row["ours"] for row in json.loads(answer.read_text(encoding="utf-8"))["rows"]}
    assert rows == {"latency": link.latency, "bytes": pytest.approx(link.bytes_per_second / 1e9)}


def test_another_number_of_ranks_is_refused(cache, capsys):
    assert "2 ranks and 3 were started" in failed(3)
    assert bench.main(["calibrate", "--ranks", "--device", "host"]) == 1
    assert "mpiexec -n 2 bppsa-bench calibrate --ranks" in capsys.readouterr().err


def test_rough_numbers_are_not_kept(cache):
    ended = mpi.run(2, *COMMAND, "--quick")
    assert "host link" in ended.stdout and not cache.exists()
