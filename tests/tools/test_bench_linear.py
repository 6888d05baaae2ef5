"""bppsa-bench linear: its rows, and that all sides compute the same."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from bench_cases import require_same, run
from marks import some

from bppsa_cupy.tools.benchmarks import linear, linear_layers
from bppsa_cupy.tools.benchmarks.workload import Lap


class Waiting(linear.OurScan):
    """Our scan, and some time."""

    SECONDS = {"quick": 1e-3, "slow": 0.1, "stuck": 1e3}  # noqa: RUF012

    def __init__(self, way: str, **sizes: int) -> None:
        super().__init__(**sizes, device="host")
        self.pause = self.SECONDS[way]

    def run(self, lap: Lap) -> None:
        time.sleep(self.pause)
        super().run(lap)


def test_all_sides_give_the_same_states_and_gradients() -> None:
    pytest.importorskip("jax")
    sizes = {"batch": 2, "steps": 9, "hidden": 3}
    sides = [linear.OurScan(**sizes, device="host")]
    sides += [linear.TorchScan(**sizes, way=way) for way in ("loop", "logcumsumexp", "associative_scan")]
    sides += [linear.JaxScan(**sizes, way=way) for way in ("lax.scan", "associative_scan")]
    for side in sides:
        side.run(lambda quantity: None)
    require_same([side.result() for side in sides])


@pytest.mark.parametrize("layer", some("LRU", long=["MinGRU"]))
def test_all_sides_of_a_layer_give_the_same(layer: str) -> None:
    pytest.importorskip("jax")
    sizes = {"layer": layer, "batch": 2, "steps": 9, "hidden": 3}
    sides: list = [linear_layers.OurLayer(**sizes, device="host")]
    for name, way in linear._rivals(["torch", "jax"], 9, layer):
        if way:
            kind = {"torch": linear_layers.TorchLayer, "jax": linear_layers.JaxLayer}[name]
            sides.append(kind(**sizes, way=way))
    for side in sides:
        side.run(lambda quantity: None)
    require_same([side.result() for side in sides])
    linear_layers.OurProducts(**sizes, device="host").run(lambda quantity: None)


def test_the_rows_of_a_small_run(tmp_path: Path) -> None:
    rows = run("linear", tmp_path, "--against", "copy", "--case", "scan")["rows"]
    assert [(row["case"], row["against"], row["quantity"]) for row in rows] == [
        ("B=2 T=50 H=8", "np.copyto", "overall")
    ]


def test_which_rivals_a_case_has() -> None:
    ways = [name for name, way in linear._rivals(["torch", "jax"], 1_000_000) if way]
    assert ways == ["jax", "jax", "torch", "torch"] and ("torch", "loop") in linear._rivals(["torch"], 30_000)
    assert ("torch", "logcumsumexp") not in linear._rivals(["torch"], 1000, "LRU")
    kept = [size for size in linear.SIZES if 4 * size[0] * size[1] * size[2] <= linear.MOST_BYTES]
    assert len(linear.SIZES) - len(kept) == 1


@pytest.mark.long
@pytest.mark.usefixtures("pytorch")
def test_a_rival_that_is_slower_by_far_is_timed_once_and_one_that_does_not_end_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(linear, "_rivals", lambda *_: [("torch", way) for way in ("quick", "slow", "stuck")])
    monkeypatch.setattr(linear, "TorchScan", Waiting)
    monkeypatch.setattr(linear, "START_SECONDS", 30)
    quick, slow, stuck = run("linear", tmp_path, "--against", "torch", "--case", "scan")["rows"]
    assert (
        quick["against"] == "PyTorch, quick" and quick["spread"]["theirs"][0] < quick["spread"]["theirs"][1]
    )
    assert slow["against"] == "PyTorch, slow (once)" and slow["theirs"] >= Waiting.SECONDS["slow"]
    assert "the best rival took" in slow["note"] and slow["spread"]["theirs"] == 2 * [slow["theirs"]]
    assert stuck["against"] == "PyTorch, stuck (left out)" and stuck["theirs"] is None and stuck["ours"] > 0
    assert "no answer to 'build' within" in stuck["note"]
