"""The notebooks of the documentation run from beginning to end, and find what their text says."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot as plt

pytestmark = pytest.mark.long

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs a notebook's source, and gives the names it leaves."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plt.switch_backend("agg")
    yield lambda name: runpy.run_path(str(NOTEBOOKS / f"{name}.py"))
    plt.close("all")


def test_the_sequence_classifier_learns(run):
    found = run("sequences")
    assert np.mean(found["losses"][-20:]) < 1.5 < found["losses"][0]
    assert found["accuracy"] > 0.4
    assert found["difference"] < 1e-4
    assert np.allclose(found["scores"], found["whole"], atol=1e-5)


def test_the_jacobians_of_small_radius_vanish(run):
    found = run("jacobians")
    assert np.allclose(found["matrix"].toarray(), found["orthogonal"].T * found["slopes"])
    assert np.all((0 < found["slopes"]) & (found["slopes"] <= 1))
    ends = {radius: values[-1, 0] for radius, values in found["spectra"].items()}
    assert ends[0.8] < 1e-4 < ends[1.0] < ends[1.2]


def test_the_pruned_network_learns_again(run):
    found = run("pruning")
    assert found["before"] > 0.9 and found["after"] > 0.9 > found["cut"]
    assert all(share == pytest.approx(0.9, abs=0.01) for share in found["zeros"].values())
    assert found["worst"] < 1e-4


def test_gradual_pruning_keeps_more_of_the_accuracy(run):
    found = run("gradual")
    assert found["gradually"][-1] > found["at_once"][-1] and found["gradually"][0] > 0.9
    assert found["found"]["RigL"] > found["found"]["static"] > 0.5 and found["moved"] > 0.1


def test_a_linear_recurrence_learns_a_mean_and_no_parity(run):
    found = run("linear")
    right = {name: np.mean(found["found"][name][1][-10:]) for name in ("MinGRU", "GRU")}
    assert min(right.values()) > 0.85
    assert np.mean(found["odd"]["MinGRU"][1][-10:]) < 0.7 < 0.95 < np.mean(found["odd"]["GRU"][1][-10:])
