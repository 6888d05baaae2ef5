"""bppsa-plan explain: its numbers are those of the planner, its tables fit a terminal."""

import json

import pytest
from plan_cases import plan_of, random_chain, small_network

from bppsa_cupy.csr import Pattern
from bppsa_cupy.models import build_model
from bppsa_cupy.plan import Budget, Chain, Element
from bppsa_cupy.plan.algorithms import blelloch, every_hybrid, linear
from bppsa_cupy.plan.counts import run_schedule
from bppsa_cupy.plan.sizes import ChainSizes
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
    assert main(["explain", str(path)]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 120
    rows = [line.split()[0] for line in out.splitlines() if line.strip()[:1].isdigit()]
    assert rows == ["1", "2", "4", "8", "11"]


def test_which_elements_are_filled_is_said(lenet5):
    (chain,) = explain(lenet5)["chains"]
    names = [element.name for element in lenet5.chains[0].chain.elements]
    crossed = [names[k - 1] for k in lenet5.schedule(0, "hybrid").vjps]
    assert crossed and chain["planned"]["vjps"] == crossed
    assert set(chain["planned"]["filled"]) == set(names) - set(crossed)


def test_numbers_for_programs(tmp_path, lenet5):
    path, answer = tmp_path / "p.h5", tmp_path / "facts.json"
    lenet5.save(path)
    assert main(["explain", str(path), "--workers", "3,1", "--batch-size", "2", "--json", str(answer)]) == 0
    facts = json.loads(answer.read_text(encoding="utf-8"))
    (chain,) = facts["chains"]
    assert facts["batch_size"] == 2 and [row["workers"] for row in chain["workers"]] == [1, 3]
    elements = lenet5.chains[0].chain.elements
    assert chain["baseline"] == 2 * sum(element.vjp_terms for element in elements[:-1])
    serial = chain["schedules"][0]
    assert serial["critical_path"] == serial["multiply_adds"]
    assert (serial["mv"], serial["mm"], serial["depth"]) == (10, 0, 10)
    assert chain["workers"][0]["critical_paths"]["linear"] == serial["multiply_adds"]
    assert chain["workers"][0]["levels"] == 0


def test_the_hybrid_is_never_longer_than_another_schedule(short_rnn):
    chain = short_rnn.chains[0].chain
    (facts,) = explain(short_rnn, workers=[2, 3, 5, 8, 13, 40])["chains"]
    sizes = ChainSizes(chain)
    for row in facts["workers"]:
        budget = Budget(short_rnn.batch_size, 4, row["workers"])
        every = [linear(40), blelloch(40), *every_hybrid(40)]
        lengths = [run_schedule(sizes, schedule, budget)[1] for schedule in every]
        assert row["critical_paths"]["hybrid"] == min(lengths)
        fewest = min(row["critical_paths"].values())
        assert (row["wins"] == "bp") == (facts["baseline"] <= fewest)


def test_the_memory_limit_holds_for_the_hybrid(short_rnn):
    free = explain(short_rnn, workers=[40])["chains"][0]["workers"][0]
    limited = explain(short_rnn, workers=[40], memory_limit=1)["chains"][0]["workers"][0]
    assert limited["levels"] == 0 < free["levels"]


def test_short_chains_and_several(tmp_path, capsys):
    path = tmp_path / "p.h5"
    plan_of(random_chain(0), random_chain(1), random_chain(2), small_network()).save(path)
    assert main(["explain", str(path)]) == 0
    out = capsys.readouterr().out
    assert all(f"chain {k}: " in out for k in range(4))


@pytest.mark.parametrize("options", [["--workers", "0"], ["--workers", "one"]])
def test_usage_errors(options):
    with pytest.raises(SystemExit) as caught:
        main(["explain", "p.h5", *options])
    assert caught.value.code == 2


def test_stated_errors(tmp_path, lenet5, capsys):
    assert main(["explain", str(tmp_path / "none.h5")]) == 1
    path = tmp_path / "p.h5"
    lenet5.save(path)
    assert main(["explain", str(path), "--json", str(tmp_path / "no" / "x.json")]) == 1
    assert capsys.readouterr().err.startswith("error: ")
