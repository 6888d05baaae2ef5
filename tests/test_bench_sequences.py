"""bppsa-bench rnn and gru: their cases, the paper's ratios, small runs against PyTorch."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
from test_bench import run

from bppsa_cupy.tools.benchmarks import gru, rnn, sequences
from bppsa_cupy.tools.benchmarks.harness import BenchmarkError, Measurement, Side
from bppsa_cupy.tools.benchmarks.sequences import Case, Gradients, TorchGradients
from bppsa_cupy.tools.benchmarks.workload import OVERALL
from bppsa_cupy.tools.reproduction.paper import Epoch

QUANTITIES = ("forward", "backward", OVERALL, "peak memory")


@pytest.mark.parametrize(("name", "case"), [("rnn", "T30"), ("gru", "M32")])
def test_a_small_run_gives_every_quantity(name: str, case: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    rows = run(name, tmp_path, "--cases", case)["rows"]
    features = {"rnn": 1, "gru": 24}[name]
    assert [row["quantity"] for row in rows] == list(QUANTITIES)
    assert {row["case"] for row in rows} == {f"{case}: T=12 B=2 F={features}"}
    assert {row["against"] for row in rows} == {"PyTorch, 1 thread"}
    assert [("paper" in row) for row in rows] == [False, True, True, False]


@pytest.mark.parametrize("name", ["rnn", "gru"])
def test_without_a_rival_a_quick_run_takes_the_first_case(name: str, tmp_path: Path) -> None:
    rows = run(name, tmp_path, "--against", "none")["rows"]
    first = {"rnn": "T10: T=10", "gru": "S: T=12"}[name]
    assert all(row["case"].startswith(first) and row["theirs"] is None for row in rows)
    assert [row["quantity"] for row in rows] == list(QUANTITIES)


def test_the_cases_are_the_papers_tables() -> None:
    lengths = {(case.steps, case.batch) for case in rnn.CASES}
    by_length = {(T, 16) for T in (10, 30, 100, 300, 1000, 3000, 10000, 30000)}
    assert lengths == by_length | {(1000, 2**k) for k in range(1, 9)} and len(rnn.CASES) == 15
    sizes = {(case.steps, case.features, case.batch) for case in gru.CASES}
    sets = {(259, 38), (517, 24), (1034, 12)}
    assert sizes == {(T, F, B) for T, F in sets for B in (16, 32, 64)} and len(gru.CASES) == 9


def test_the_papers_ratios() -> None:
    case = next(case for case in rnn.CASES if case.name == "T30000")
    assert case.paper_ratio(OVERALL) == pytest.approx(1557.94 / 764.31)
    assert case.paper_ratio("backward") == pytest.approx((1557.94 - 748.99) / (764.31 - 748.99))
    assert case.paper_ratio("forward") is None
    case = next(case for case in gru.CASES if case.name == "L")
    assert case.paper_ratio("backward") == pytest.approx((11.43 - 5.78) / (6.91 - 6.06))


def test_a_case_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    sequences.add_cases(parser, gru.CASES)
    assert [case.name for case in parser.parse_args(["--cases", "S,L64"]).cases] == ["S", "L64"]
    with pytest.raises(SystemExit):
        parser.parse_args(["--cases", "S,T1000"])
    assert "T1000: there are S, S32, S64, M" in capsys.readouterr().err


def test_gradients_that_differ_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = argparse.Namespace(device="host", threads=1, against="torch", repeats=1, quick=True)

    def spoilt(sides: dict[str, Side], *more: object) -> dict[str, Measurement]:
        measured = {}
        for name in sides:
            workload = Gradients("rnn", "host", 5, 1, 2)
            workload.run(lambda quantity: None)
            result = workload.result()
            result["0.weight_hh_l0"] *= 1 if name == "ours" else np.float32(1.001)
            measured[name] = Measurement(result=result)
        return measured

    monkeypatch.setattr(sequences, "measure", spoilt)
    case = Case("T5", 5, 1, 2, Epoch(1.0, 2.0, 1.0, 1.5))
    with pytest.raises(BenchmarkError, match=r"T5: .*0\.weight_hh_l0 differs"):
        sequences._rows(arguments, "rnn", case)


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
