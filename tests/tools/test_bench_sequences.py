"""bppsa-bench rnn, gru, recurrent and heads: cases, the paper's ratios, small runs, and runs that go on."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bench_cases import run

from bppsa_cupy.tools import bench
from bppsa_cupy.tools.benchmarks import sequences
from bppsa_cupy.tools.benchmarks.harness import BenchmarkError, Measurement, Side
from bppsa_cupy.tools.benchmarks.sequence_sides import Gradients, TorchGradients
from bppsa_cupy.tools.benchmarks.sequences import CASES
from bppsa_cupy.tools.benchmarks.workload import OVERALL

pytestmark = pytest.mark.long

QUANTITIES = ["forward", "backward", OVERALL]


@pytest.mark.parametrize(("name", "case"), [("rnn", "T30"), ("gru", "M32")])
def test_a_small_run_gives_every_quantity(name: str, case: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    rows = run(name, tmp_path, "--cases", case)["rows"]
    features = {"rnn": 1, "gru": 24}[name]
    assert [row["quantity"] for row in rows] == [*QUANTITIES, "peak memory"]
    assert {row["case"] for row in rows} == {f"{case}: T=12 B=2 F={features}"}
    assert {row["against"] for row in rows} == {"PyTorch, 1 thread"}
    assert [("paper" in row) for row in rows] == [False, True, True, False]


@pytest.mark.parametrize("name", ["rnn", "gru"])
def test_without_a_rival_a_quick_run_takes_the_first_case(name: str, tmp_path: Path) -> None:
    rows = run(name, tmp_path, "--against", "none")["rows"]
    first = {"rnn": "T10: T=10", "gru": "S: T=12"}[name]
    assert all(row["case"].startswith(first) and row["theirs"] is None for row in rows)
    assert [row["quantity"] for row in rows] == [*QUANTITIES, "peak memory"]


def test_the_cases_are_the_papers_tables() -> None:
    lengths = {(case.steps, case.batch) for case in CASES["rnn"]}
    by_length = {(T, 16) for T in (10, 30, 100, 300, 1000, 3000, 10000, 30000)}
    assert lengths == by_length | {(1000, 2**k) for k in range(1, 9)} and len(CASES["rnn"]) == 15
    sizes = {(case.steps, case.features, case.batch) for case in CASES["gru"]}
    sets = {(259, 38), (517, 24), (1034, 12)}
    assert sizes == {(T, F, B) for T, F in sets for B in (16, 32, 64)} and len(CASES["gru"]) == 9


def test_the_papers_ratios() -> None:
    case = next(case for case in CASES["rnn"] if case.name == "T30000")
    assert case.paper_ratio(OVERALL) == pytest.approx(1557.94 / 764.31)
    assert case.paper_ratio("backward") == pytest.approx((1557.94 - 748.99) / (764.31 - 748.99))
    assert case.paper_ratio("forward") is None
    case = next(case for case in CASES["gru"] if case.name == "L")
    assert case.paper_ratio("backward") == pytest.approx((11.43 - 5.78) / (6.91 - 6.06))


def test_a_case_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    sequences.add_cases(parser, CASES["gru"])
    assert [case.name for case in parser.parse_args(["--cases", "S,L64"]).cases] == ["S", "L64"]
    with pytest.raises(SystemExit):
        parser.parse_args(["--cases", "S,T1000"])
    assert "T1000: there are S, S32, S64, M" in capsys.readouterr().err


@pytest.mark.parametrize(("cell", "features", "hidden"), [("rnn", 1, 20), ("gru", 3, 20), ("lstm", 8, 5)])
def test_both_sides_start_alike_and_can_run_again(cell: str, features: int, hidden: int) -> None:
    pytest.importorskip("torch")
    sizes = {"device": "host", "steps": 4, "features": features, "batch": 3, "hidden": hidden}
    ours, theirs = Gradients(cell, **sizes), TorchGradients(cell, **sizes)
    for workload in (ours, theirs):
        laps: list[str] = []
        for _ in range(2):
            workload.reset()
            workload.run(laps.append)
        assert laps == ["forward", "backward"] * 2
    mine, rival = ours.result(), theirs.result()
    assert mine.keys() == rival.keys()
    for name in mine:
        np.testing.assert_allclose(mine[name], rival[name], atol=1e-6)


def test_a_small_case_gives_both_sides_and_their_threads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    sizes = "--cells lstm --hidden 3 --batch 2 --steps 5"
    rows = run("recurrent", tmp_path, *sizes.split())["rows"]
    assert [(row["case"], row["quantity"]) for row in rows] == [("lstm H=3 B=2 T=5", q) for q in QUANTITIES]
    for row in rows:
        assert (row["against"], row["note"]) == ("PyTorch, 1 thread", "ours on 1 thread, 3 samples")
        assert 0 < row["ours"] and row["ratio"] == row["theirs"] / row["ours"]
    *_, last = capsys.readouterr().out.splitlines()
    assert last.split() == ["lstm", "1", *[f"{rows[2]['ratio']:.3g}"] * 2, "H=3", "B=2", "T=5"]


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("words", [[], ["--inference"]])
def test_the_grid_beside_pytorch_and_jax(cell: str, words: list[str], tmp_path: Path, capsys) -> None:
    """Results are compared before times are given: loss and gradients, or scores."""
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    sizes = f"--cells {cell} --hidden 3 --batch 2 --steps 5 --against torch jax"
    rows = run("recurrent", tmp_path, *sizes.split(), *words)["rows"]
    parts = [OVERALL] if words else list(QUANTITIES)
    expected = [("PyTorch, 1 thread", part) for part in parts] + [("jax.lax.scan, 1 thread", OVERALL)]
    assert [(row["against"], row["quantity"]) for row in rows] == expected
    *_, by_torch, by_jax = capsys.readouterr().out.splitlines()
    assert by_torch.startswith(f"{cell} against torch") and by_jax.startswith(f"{cell} against jax")


def arguments_of(*words: str):
    arguments = bench.parser().parse_args(["recurrent", "--device", "host", *words])
    arguments.command = "bppsa-bench recurrent"
    return arguments


def test_the_grid() -> None:
    cases = sequences.grid(arguments_of())
    sizes = [("rnn", "gru", "lstm"), (20, 64, 128, 256, 512), (1, 4, 16, 64), (100, 1000)]
    assert {(case.cell, case.hidden, case.batch, case.steps) for case in cases} == set(
        itertools.product(*sizes)
    )
    part = sequences.grid(arguments_of("--cells", "gru,rnn", "--hidden", "33,7", "--batch", "2", "--quick"))
    assert [case.name for case in part] == [
        f"{cell} H={hidden} B=2 T=12" for cell in ("gru", "rnn") for hidden in (7, 33)
    ]
    with pytest.raises(SystemExit):
        arguments_of("--cells", "rnn,mgu")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], None]], list[str]]:
    """Replaces measuring by made times; gives the names of the cases measured, and calls `before` with the
    number of each."""

    def install(before: Callable[[int], None] = lambda number: None) -> list[str]:
        names: list[str] = []

        def measure(sides: dict[str, Side], repeats: int, *rest: float, check, **limits: float):
            options = sides["ours"].options
            names.append(f"{options['cell']} {options['hidden']}")
            before(len(names))
            made = {name: Measurement(result={"loss": np.ones(1)}) for name in sides}
            for place, one in enumerate(made.values()):
                for quantity in QUANTITIES:
                    one.seconds[quantity] = [(1 + place) * options["hidden"]] * 3
            check({name: one.result for name, one in made.items()})
            return made

        monkeypatch.setattr(sequences, "measure", measure)
        return names

    return install


def stored(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["rows"]


def command(*words: str) -> int:
    sizes = ["--batch", "1", "--steps", "2", "--threads", "1"]
    return bench.main(["recurrent", "--device", "host", *sizes, *words])


def test_a_run_that_is_stopped_loses_nothing_and_goes_on(tmp_path: Path, measured) -> None:
    def stop(number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    file = tmp_path / "rows.json"
    words = ["--cells", "rnn,gru", "--hidden", "2,3", "--json", str(file)]
    measured(stop)
    assert command(*words) == 130
    first = stored(file)
    assert [row["case"] for row in first] == ["rnn H=2 B=1 T=2"] * 3 + ["rnn H=3 B=1 T=2"] * 3
    names = measured()
    assert command(*words, "--resume") == 0
    assert names == ["gru 2", "gru 3"]
    assert stored(file)[:6] == first and len(stored(file)) == 12
    # What other options measured is kept too.
    assert command("--cells", "lstm", "--hidden", "2", "--json", str(file), "--resume") == 0
    assert stored(file)[:6] == first and len(stored(file)) == 15


def test_a_case_that_differs_is_left_out_and_the_others_go_on(tmp_path: Path, capsys, measured) -> None:
    def differ(number: int) -> None:
        if number == 2:
            raise BenchmarkError("rnn H=3, PyTorch: loss differs by 1")

    measured(differ)
    assert command("--cells", "rnn", "--hidden", "2,3,4", "--json", str(tmp_path / "rows.json")) == 1
    assert [row["case"] for row in stored(tmp_path / "rows.json")[::3]] == [
        "rnn H=2 B=1 T=2",
        "rnn H=4 B=1 T=2",
    ]
    out, err = capsys.readouterr()
    warning, error = err.splitlines()
    assert warning == "warning: left out: rnn H=3, PyTorch: loss differs by 1"
    assert error.startswith("error: 1 of 3 cases were left out, rnn H=3 B=1 T=2: --resume")
    assert "rnn H=4" in out and "geometric mean" in out


@pytest.mark.parametrize(
    "words", ["recurrent --cells rnn --hidden 2", "rnn --cases T10", "heads --cells gru --hidden 16"]
)
def test_results_are_compared(words: str, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def measure(sides: dict[str, Side], *rest: float, check, **limits: float) -> None:
        check({name: {"0.weight_hh_l0": np.full(3, 1.0 + 1e-3 * (name == "ours"))} for name in sides})

    monkeypatch.setattr(sequences, "measure", measure)
    assert bench.main([*words.split(), "--device", "host", "--threads", "1"]) == 1
    assert "PyTorch, 1 thread: 0.weight_hh_l0 differs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--resume", "--resume goes on with a file: give --json FILE with it"),
        ("--json {} --resume --threads 2", "was measured with machine {"),
        ("--json {} --resume --against none", "was measured with against torch, this run has none"),
        ("--json {}.broken --resume", "holds no rows of a benchmark"),
    ],
)
def test_what_cannot_be_resumed_is_told(words: str, message: str, tmp_path: Path, capsys, measured) -> None:
    measured()
    file = tmp_path / "rows.json"
    assert command("--cells", "rnn", "--hidden", "2", "--json", str(file)) == 0
    before = file.read_bytes()
    (tmp_path / "rows.json.broken").write_text("[1]", encoding="utf-8")
    capsys.readouterr()
    assert command("--cells", "rnn", "--hidden", "2", *words.format(file).split()) == 1
    assert message in capsys.readouterr().err
    assert file.read_bytes() == before


def test_the_table_ends_with_the_mean_and_the_worst_of_every_cell() -> None:
    def row(case: str, quantity: str, ratio: float) -> dict:
        return {"case": case, "quantity": quantity, "ours": 1.0, "theirs": ratio, "against": "PyTorch",
                "ratio": ratio, "spread": {"ratio": [ratio, ratio]}, "note": "ours on 2 threads"}  # fmt: skip

    ratios = {"rnn H=2 B=1 T=2": 8.0, "gru H=2 B=1 T=2": 3.0, "rnn H=3 B=1 T=2": 0.5, "rnn H=4 B=1 T=2": 2.0}
    rows = [
        row(case, quantity, ratio if quantity == OVERALL else 100.0)
        for case, ratio in ratios.items()
        for quantity in QUANTITIES
    ]
    *lines, head, rnn, gru = sequences.grid_table(rows).splitlines()
    assert [line.split("  ")[0] for line in lines[1:-1]] == list(ratios)
    assert head.split() == ["cell", "cases", "geometric", "mean", "worst"]
    assert rnn.split() == ["rnn", "3", "2", "0.5", "H=3", "B=1", "T=2"]
    assert gru.split() == ["gru", "1", "3", "3", "H=2", "B=1", "T=2"]


@pytest.mark.usefixtures("pytorch")
def test_every_cell_beside_both_rivals(tmp_path: Path) -> None:
    """The stepped layer's gradients are compared with ours before anything is timed."""
    sizes = "--hidden 6 --head-size 2 --batch 3 --steps 5"
    rows = run("heads", tmp_path, *sizes.split())["rows"]
    cases = [f"{cell} H=6, 3 heads, B=3 T=5" for cell in ("gru", "lstm")]
    assert list(dict.fromkeys(row["case"] for row in rows)) == cases
    assert [row["against"] for row in rows[:6]] == (
        ["PyTorch's dense layer, 1 thread"] * 3 + ["stepped by PyTorch, 1 thread"] * 3
    )
    assert all(row["ratio"] == row["theirs"] / row["ours"] for row in rows)


def test_units_that_are_no_whole_number_of_heads(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["heads", "--hidden", "20", "--head-size", "16"]) == 1
    assert "--hidden 20 is no multiple of --head-size 16" in capsys.readouterr().err
