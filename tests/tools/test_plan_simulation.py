"""bppsa-plan explain --ranks: times, messages and memory of simulated ranks, and the laws of the paper."""

import json
import math
import re

import numpy as np
import pytest
from plan_cases import plan_of, random_chain

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan import Budget, Partition, place, rank_memory_plans
from bppsa_cupy.plan.algorithms import blelloch, linear
from bppsa_cupy.plan.cost import find_model, message_bytes, preparation_seconds, schedule_cost, vjp_seconds
from bppsa_cupy.plan.sizes import ChainSizes
from bppsa_cupy.tools.plan import main
from bppsa_cupy.tools.plans.simulated_ranks import explain_equal, explain_ranks

ONE = Pattern.dense(1, 1)


def rows_of(facts):
    return {row["ranks"]: row for row in facts["chains"][0]["ranks"]}


def test_equation_6_and_the_memory_of_a_rank():
    """Θ(n/p + log p) steps of algorithm 1 and n of the serial scan; n/p + log2 n Jacobians a rank."""
    n = 1024
    rows = rows_of(explain_equal(ONE, n, 1))
    assert list(rows) == [2**k for k in range(11)]
    for p, row in rows.items():
        serial, scan = row["schedules"]["linear"], row["schedules"]["blelloch"]
        assert serial["time"] == row["bp"] == n - 1
        assert n / p - 2 <= scan["time"] <= 2 * (n / p + math.log2(p))
        assert scan["jacobian_bytes"] <= 1.1 * (n / p + math.log2(n)) * 4
        assert n / p - 1 <= serial["jacobian_bytes"] / 4 <= n / p
        assert serial["sent"] == {
            "vectors": p - 1, "vector_bytes": 4 * (p - 1), "matrices": 0, "matrix_bytes": 0,
        }  # fmt: skip
        assert row["pipeline_vectors"] == n / p + p
        assert row["schedules"]["computed"]["time"] == min(one["time"] for one in row["schedules"].values())


def test_numbers_are_those_of_the_placement_and_its_times():
    plan, model = plan_of(random_chain(7), random_chain(9, 3)), find_model("host")
    facts = explain_ranks(plan, 3, model="host", ranks=[1, 3], balance="elements")
    for chain, told in zip(plan.chains, facts["chains"], strict=True):
        n, sizes = len(chain.chain), ChainSizes(chain.chain)
        for row in told["ranks"]:
            p = row["ranks"]
            owners = tuple(Partition.equal(n, p).owners.tolist())
            budget = Budget(3, 4, p, model, owners=owners)
            assert row["bp"] == pytest.approx(vjp_seconds(chain.chain, budget))
            around = preparation_seconds(chain.chain, budget)
            for name, schedule in (("linear", linear(n)), ("blelloch", blelloch(n))):
                one = row["schedules"][name]
                assert one["time"] == pytest.approx(schedule_cost(sizes, schedule, budget).seconds + around)
                placement = place(schedule, owners, p)
                amounts = message_bytes(sizes, placement, 3, 4)
                assert one["sent"]["vectors"] + one["sent"]["matrices"] == len(placement.sent)
                assert one["sent"]["vector_bytes"] + one["sent"]["matrix_bytes"] == amounts.sum()
                by_source = np.bincount(placement.sent[:, 3], amounts, p)
                assert one["most_bytes"] == by_source.max()
                held = [layout.total_bytes for layout in rank_memory_plans(sizes, placement, 3, 4)]
                assert one["jacobian_bytes"] <= one["memory"] <= max(held)
            assert row["schedules"]["computed"]["time"] <= min(
                row["schedules"][name]["time"] for name in ("linear", "blelloch", "paper")
            )


@pytest.mark.parametrize("balance", ["seconds", "bytes", "elements"])
def test_more_ranks_than_elements_and_short_chains(balance):
    facts = explain_ranks(
        plan_of(random_chain(0), random_chain(1), random_chain(3)), 2, ranks=[1, 5], balance=balance
    )
    for chain in facts["chains"]:
        assert [row["ranks"] for row in chain["ranks"]] == [1, 5]
    assert facts["chains"][0]["ranks"][1]["schedules"]["blelloch"]["time"] == 0


def test_long_chains_of_equal_elements():
    n = 20_000
    rows = rows_of(explain_equal(ONE, n, 1, ranks=[1, 64]))
    assert rows[64]["schedules"]["blelloch"]["time"] <= 2 * (n / 64 + math.log2(64)) + 2
    assert rows[64]["schedules"]["computed"]["time"] <= rows[64]["schedules"]["blelloch"]["time"]
    assert rows[1]["schedules"]["computed"]["found_as"] == "linear"


def test_tables_and_numbers(tmp_path, capsys):
    path, answer = tmp_path / "p.h5", tmp_path / "facts.json"
    plan_of(random_chain(8)).save(path)
    for given in ([str(path), "--ranks", "1,2,4"], ["--equal", "200", "--size", "20", "--ranks", "4,1,2"]):
        for model in ("ideal", "host"):
            assert main(["explain", *given, "--model", model, "--json", str(answer)]) == 0
            out = capsys.readouterr().out
            assert max(map(len, out.splitlines())) <= 120
            for text in ("linear:", "blelloch:", "paper:", "computed:", "computed is", "pipeline"):
                assert text in out
            facts = json.loads(answer.read_text(encoding="utf-8"))
            assert [row["ranks"] for row in facts["chains"][0]["ranks"]] == [1, 2, 4]
            assert facts["model"] == model


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give the FILE of a plan, or --equal N"),
        (["p.h5", "--equal", "3"], "give the FILE of a plan, or --equal N"),
        (["p.h5", "--balance", "bytes"], "give --ranks"),
        (["p.h5", "--size", "3"], "give --ranks"),
        (["p.h5", "--size", "3", "--ranks", "2"], "give --equal N"),
        (["--equal", "9", "--workers", "2"], "leave them out"),
        (["--equal", "9", "--ranks", "2", "--balance", "bytes"], "--equal has equal ones: leave it out"),
        (["--equal", "9", "--memory-limit", "2G"], "leave them out"),
        (["--equal", "9", "--steps", "3"], "give the FILE of a plan, or --equal N .* or --steps T"),
        (["--equal", "9", "--cell", "gru"], "give --steps T"),
        (["--steps", "9", "--workers", "2"], "--workers is of a plan's chains.*leave it out"),
        (["--steps", "9", "--memory-limit", "2G"], "--memory-limit is of a plan's chains"),
        (["--steps", "9", "--balance", "bytes"], "--balance is of a plan's chains"),
    ],
)
def test_contradictions_are_stated(capsys, options, message):
    assert main(["explain", *options]) == 1
    assert re.search(message, capsys.readouterr().err)


def test_a_layer_over_time(tmp_path, capsys):
    """What the cost model says of each number of ranks; of a GPU by its own estimates."""
    answer = tmp_path / "facts.json"
    words = ["explain", "--steps", "30000", "--size", "20", "--ranks", "1,4,64", "--json", str(answer)]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert (
        "rnn, 20 units, 30,000 steps" in out and "host, uncalibrated: predicted seconds; a batch of 16" in out
    )
    one, four, many = json.loads(answer.read_text(encoding="utf-8"))["ranks"]
    assert one["seconds"] == one["relayed"] and one["holders"] == 1
    assert four["seconds"] == four["relayed"] > one["seconds"]
    assert many["seconds"] == many["scanned"] < one["seconds"] / 2 and many["window"] == 8
    lines = [line.split() for line in out.splitlines() if re.match(r" +(1|4|64) ", line)]
    assert [line[7:9] for line in lines[:2]] == [["relayed", "1"], ["relayed", "4"]]
    assert lines[2][7:9] == ["by", "chunks"] and lines[2][-2:] == ["8", "1"]
    assert main([*words, "--batch-size", "64"]) == 0
    rows = json.loads(answer.read_text(encoding="utf-8"))["ranks"]
    assert [row["groups"] for row in rows[:2]] == [1, 2] and rows[1]["forward"] < 0.7 * rows[0]["forward"]
    assert main([*words, "--model", "cuda", "--cell", "lstm", "--batch-size", "64"]) == 0
    assert "lstm, 20 units" in capsys.readouterr().out
    facts = json.loads(answer.read_text(encoding="utf-8"))
    assert facts["model"] == "cuda" and facts["batch_size"] == 64 and facts["ranks"][0] != one
