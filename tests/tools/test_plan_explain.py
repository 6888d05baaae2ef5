"""bppsa-plan explain: its numbers are those of the cost model, its tables fit a terminal."""

import json

import pytest
from plan_cases import plan_of, random_chain, small_network

from bppsa_cupy.csr import Pattern
from bppsa_cupy.models import build_model
from bppsa_cupy.plan import Budget, Chain, Element
from bppsa_cupy.plan.algorithms import blelloch, hybrid, linear, paper_hybrid
from bppsa_cupy.plan.cost import MODELS, schedule_cost, vjp_seconds
from bppsa_cupy.plan.schedule import up_sweep_levels
from bppsa_cupy.tools.plan import main
from bppsa_cupy.tools.plans.explain import explain


@pytest.fixture(scope="module")
def lenet5():
    return build_model("lenet5", (1, 16, 16), device="host").plan(batch_size=8)


@pytest.fixture(scope="module")
def short_rnn():
    """40 dense Jacobians of 4 hidden units."""
    return plan_of(Chain((Element("J", Pattern.dense(4, 4), False),) * 40), schedules=["linear"])


def test_a_table_for_people(tmp_path, lenet5, capsys):
    path = tmp_path / "p.h5"
    lenet5.save(path)
    for model in MODELS:
        assert main(["explain", str(path), "--model", model]) == 0
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) <= 120
        for text in ("blelloch", "paper: hybrid of 3 levels", "computed", "bound", "wins", "memory"):
            assert text in out
        assert "the scan beats back-propagation" in out
        assert [line.split()[0] for line in out.splitlines() if line.strip()[:1].isdigit()] == [
            "1", "2", "4", "8", "11",
        ]  # fmt: skip


def test_which_elements_are_filled_is_said(tmp_path, lenet5, capsys):
    (chain,) = explain(lenet5)["chains"]
    schedule = lenet5.schedule(0, "hybrid")
    names = [element.name for element in lenet5.chains[0].chain.elements]
    crossed = [names[step.split - 1] for step in schedule.steps if step.kind == "vjp"]
    assert crossed and sorted(chain["planned"]["vjps"]) == sorted(crossed)
    assert set(chain["planned"]["filled"]) == set(names[:-1]) - set(crossed)
    lenet5.save(tmp_path / "p.h5")
    assert main(["explain", str(tmp_path / "p.h5")]) == 0
    assert f"the plan's hybrid, by VJPs: {names[0]}" in " ".join(capsys.readouterr().out.split())
    assert main(["show", str(tmp_path / "p.h5")]) == 0
    assert "VJP" in capsys.readouterr().out


def test_numbers_for_programs(tmp_path, lenet5, capsys):
    path, answer = tmp_path / "p.h5", tmp_path / "facts.json"
    lenet5.save(path)
    assert main(["explain", str(path), "--workers", "3,1", "--batch-size", "2", "--json", str(answer)]) == 0
    facts = json.loads(answer.read_text(encoding="utf-8"))
    assert (facts["model"], facts["unit"], facts["batch_size"]) == ("ideal", "multiply-adds", 2)
    (chain,) = facts["chains"]
    assert [row["workers"] for row in chain["workers"]] == [1, 3]
    assert chain["preparation"] == 0
    assert chain["baseline"] == vjp_seconds(lenet5.chains[0].chain, Budget(2, 4))
    names = ["linear", "blelloch", "paper", "computed"]
    assert [schedule["name"] for schedule in chain["schedules"]] == names
    serial = chain["schedules"][0]
    assert serial["work"] == serial["critical_path"] == serial["multiply_adds"]
    assert (serial["mv"], serial["mm"], serial["depth"]) == (10, 0, 10)
    assert chain["workers"][0]["times"]["linear"] == serial["work"]


@pytest.mark.parametrize("model", list(MODELS))
def test_computed_is_never_longer_and_never_below_the_bound(model, lenet5, short_rnn):
    for plan in (lenet5, short_rnn):
        (chain,) = explain(plan, model=model, workers=range(1, 13))["chains"]
        shortest = chain["schedules"][-1]["critical_path"]
        assert all(shortest <= schedule["critical_path"] for schedule in chain["schedules"])
        for row in chain["workers"]:
            times = row["times"]
            assert times["computed"] == min(times.values())
            assert row["lower_bound"] <= times["computed"] * (1 + 1e-9)
            best = min(times, key=lambda name: times[name])
            assert row["wins"] == ("bp" if chain["baseline"] <= times[best] else best)


def test_never_longer_than_any_hybrid_on_any_number_of_workers(short_rnn):
    chain = short_rnn.chains[0].chain
    full = plan_of(chain, schedules=["blelloch"])
    (facts,) = explain(full, workers=[1, 2, 3, 5, 8, 13, 40])["chains"]
    schedules = [linear(40), blelloch(40), paper_hybrid(40)]
    schedules += [hybrid(40, levels) for levels in range(up_sweep_levels(40) + 1)]
    counts = [plan_of(chain, schedules=["hybrid"], levels=k).chains[0].sizes for k in range(6)]
    for row in facts["workers"]:
        for schedule in schedules:
            levels = {"linear": 0, "blelloch": 5}.get(schedule.name, schedule.levels)
            cost = schedule_cost(counts[levels], schedule, Budget(4, 4, row["workers"]))
            assert row["times"]["computed"] <= cost.seconds


def test_from_which_p_the_scan_pays(short_rnn):
    (chain,) = explain(short_rnn, workers=[1, 64])["chains"]
    first = chain["scan_beats_bp_from"]
    (around,) = explain(short_rnn, workers=[first - 1, first])["chains"]
    assert around["workers"][0]["wins"] == "bp" and around["workers"][1]["wins"] != "bp"
    assert explain(short_rnn, workers=[1])["chains"][0]["scan_beats_bp_from"] is None


def test_the_memory_limit_holds_for_the_computed_schedule(short_rnn):
    free = explain(short_rnn, workers=[40])["chains"][0]["workers"][0]["computed"]
    limited = explain(short_rnn, workers=[40], memory_limit=free["memory"] - 1)["chains"][0]["workers"][0]
    assert limited["computed"]["memory"] < free["memory"]
    assert limited["times"]["computed"] >= free["critical_path"]


def test_short_chains_and_several(tmp_path, capsys):
    path = tmp_path / "p.h5"
    plan_of(random_chain(0), random_chain(1), random_chain(2), small_network()).save(path)
    assert main(["explain", str(path)]) == 0
    out = capsys.readouterr().out
    assert all(f"chain {k}: " in out for k in range(4))


@pytest.mark.parametrize("options", [["--workers", "0"], ["--workers", "one"], ["--model", "tpu"]])
def test_usage_errors(options):
    with pytest.raises(SystemExit) as caught:
        main(["explain", "p.h5", *options])
    assert caught.value.code == 2


def test_chains_too_long_to_search(tmp_path, lenet5, capsys, monkeypatch):
    monkeypatch.setattr("bppsa_cupy.tools.plans.explain.MOST_ELEMENTS", 10)
    path = tmp_path / "p.h5"
    lenet5.save(path)
    assert main(["explain", str(path)]) == 1
    assert "a chain of 11 elements is too long to search" in capsys.readouterr().err


def test_stated_errors(tmp_path, lenet5, capsys):
    assert main(["explain", str(tmp_path / "none.h5")]) == 1
    assert "does not exist" in capsys.readouterr().err
    path = tmp_path / "p.h5"
    lenet5.save(path)
    assert main(["explain", str(path), "--json", str(tmp_path / "no" / "x.json")]) == 1
    assert capsys.readouterr().err.startswith("error: ")
