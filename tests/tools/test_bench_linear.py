"""bppsa-bench linear: its rows, and that all sides compute the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_cases import require_same, run
from marks import some

from bppsa_cupy.tools.benchmarks import linear, linear_layers


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
    ways = dict.fromkeys(("torch", "jax"), 0)
    for name, way in linear._rivals(["torch", "jax"], 30_000):
        if way:
            ways[name] += 1
    assert ways == {"torch": 2, "jax": 2} and ("torch", "loop") in linear._rivals(["torch"], 1000)
    kept = [size for size in linear.SIZES if 4 * size[0] * size[1] * size[2] <= linear.MOST_BYTES]
    assert len(linear.SIZES) - len(kept) == 1
