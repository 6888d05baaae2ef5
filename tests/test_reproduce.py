"""bppsa-reproduce on small data: the figures' numbers and pictures."""

import json

import numpy as np

from bppsa_cupy.tools.figures import figure6
from bppsa_cupy.tools.reproduce import main


def test_figure6(tmp_path, capsys):
    rng = np.random.default_rng(0)
    records = rng.integers(0, 256, (40, 3073), dtype=np.uint8)
    records[:, 0] = rng.integers(0, 10, 40)
    records.tofile(tmp_path / "data_batch_1.bin")
    out = tmp_path / "out"
    code = main(
        ["figure6", "--data", str(tmp_path), "--out", str(out), "--iterations", "3", "--batch-size", "4",
         "--device", "host"]
    )  # fmt: skip
    assert code == 0
    result = json.loads((out / "figure6.json").read_text(encoding="utf-8"))
    assert result["command"].startswith("bppsa-reproduce figure6 --data")
    float64, float32 = result["losses"]["float64"], result["losses"]["float32"]
    assert set(float64) == {"bp", "linear", "blelloch", "hybrid"}
    assert set(float32) == {*float64, *(f"noise {seed}" for seed in figure6.NOISE_SEEDS)}
    assert all(len(losses) == 3 for losses in float32.values())
    rows = result["comparison"]
    assert [row["agrees"] for row in rows if row["dtype"] == "float64"] == [True] * 3
    assert (out / "figure6.png").read_bytes().startswith(b"\x89PNG")
    assert "largest relative difference to bp" in capsys.readouterr().out


def test_pruning_and_retraining(tmp_path, capsys):
    """In float64, so that the curves agree whatever training does to rounding errors."""
    rng = np.random.default_rng(0)
    for name in ("data_batch_1.bin", "test_batch.bin"):
        records = rng.integers(0, 256, (40, 3073), dtype=np.uint8)
        records[:, 0] = rng.integers(0, 10, 40)
        records.tofile(tmp_path / name)
    code = main(
        ["prune", "--data", str(tmp_path), "--out", str(tmp_path), "--model", "lenet5", "--prune", "0.9",
         "--iterations", "6", "--retrain", "5", "--batch-size", "8", "--test-samples", "30",
         "--dtype", "float64", "--device", "host"]
    )  # fmt: skip
    assert code == 0
    result = json.loads((tmp_path / "prune.json").read_text(encoding="utf-8"))
    losses = result["losses"]
    assert {label: len(curve) for label, curve in losses.items()} == {
        "training": 6, "bp": 5, "auto": 5, "hybrid": 5, "bp with noise": 5,
    }  # fmt: skip
    assert all(0.89 < part < 0.91 for part in result["pruned"].values()) and len(result["pruned"]) == 5
    np.testing.assert_allclose(losses["hybrid"], losses["bp"], rtol=1e-9)
    assert (
        result["backward"]["hybrid"].endswith("levels")
        and "hybrid of 1 levels" in result["backward"]["hybrid"]
    )
    assert list(result["accuracy"]) == ["trained", "pruned", "bp", "auto", "hybrid", "bp with noise"]
    assert (tmp_path / "prune.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert (
        "hybrid: largest relative difference of losses to bp" in printed and "accuracy, pruned: " in printed
    )


def test_missing_data_is_one_line(tmp_path, capsys):
    assert main(["figure6", "--data", str(tmp_path / "none")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
