"""bppsa-reproduce forgetting on a few bitstreams: its numbers by hand, its files, and what it refuses."""

import json

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.models import build_model
from bppsa_cupy.tools import data as data_tool
from bppsa_cupy.tools.figures.forgetting import CELLS, norms_back, set_radius
from bppsa_cupy.tools.reproduce import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--length", "12", "--samples", "30", "--test-samples", "20", "-o", "bits.h5"]
    assert data_tool.main(["bitstream", *options]) == 0
    return tmp_path


@pytest.mark.parametrize("cell", CELLS)
def test_each_gate_gets_the_radius(cell):
    net = build_model(cell, (5, 2), hidden_size=6, device="host", dtype="float64")
    before = net.state_dict()
    set_radius(net, 1.25)
    after = net.state_dict()
    for name, weight in after.items():
        if name != "0.weight_hh_l0":
            np.testing.assert_array_equal(weight, before[name])
    for block, was in zip(*(s["0.weight_hh_l0"].reshape(-1, 6, 6) for s in (after, before)), strict=True):
        assert np.abs(np.linalg.eigvals(block)).max() == pytest.approx(1.25)
        np.testing.assert_allclose(block / was, (block / was)[0, 0], rtol=1e-12)


def test_norms_are_counted_from_each_samples_end():
    net = bp.Sequential([bp.GRU(2, 3, outputs="last")], (9, 2), dtype="float64", device="host")
    x = np.random.default_rng(0).standard_normal((4, 9, 2))
    net.forward(x, lengths=[9, 4, 6, 7])
    chain = net.transposed_jacobians()
    found = norms_back(chain)
    assert len(found) == 6 and found[0] == 0
    for back, lengths in ((1, [9, 4, 6, 7]), (4, [9, None, 6, 7])):
        norms = [
            bp.span_product(chain.sample(k).where(steps=range(length - back, length))).log_norm[0]
            for k, length in enumerate(lengths)
            if length
        ]
        assert found[back] == pytest.approx(np.median(norms) / np.log(10), abs=6e-4)


def test_the_figure(folder, capsys):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    options = "--radii 0.5,2 --hidden-size 4 --sequences 6 --seeds 2 --epochs 1 --device host".split()
    assert main(["forgetting", "--data", "bits.h5", "--out", "out", *options]) == 0
    result = json.loads((folder / "out" / "forgetting.json").read_text(encoding="utf-8"))
    assert result["command"] == " ".join(["bppsa-reproduce forgetting --data bits.h5 --out out", *options])
    assert [(row["cell"], row["radius"]) for row in result["rows"]] == [
        (cell, radius) for cell in CELLS for radius in (0.5, 2)
    ]
    for row in result["rows"]:
        assert len(row["exponents"]) == len(row["trained_exponents"]) == len(row["accuracies"]) == 2
        assert row["exponents"] != row["trained_exponents"] and len(row["log10_norms"]) == 12
    small, large = result["rows"][:2]
    assert small["exponents"][0] < large["exponents"][0]
    assert (folder / "out" / "forgetting.png").read_bytes()[:4] == b"\x89PNG"
    assert "rnn 0.5: largest Lyapunov exponent -" in capsys.readouterr().out


def test_what_it_does_not_take(folder, capsys):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    np.savez("flat.npz", x=np.zeros((6, 4), np.float32), y=np.arange(6) % 2)
    assert main(["forgetting", "--data", "flat.npz", "--out", "out"]) == 1
    assert "the figure takes sequences (T, F) with a label each" in capsys.readouterr().err
    for radii in ("0,1", "a", "", "1,inf"):
        with pytest.raises(SystemExit) as end:
            main(["forgetting", "--data", "bits.h5", "--radii", radii])
        assert end.value.code == 2
