"""bppsa-plan flops: counts by hand, the critical path by brute force, JSON, table and picture."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import plan_of, small_network

import bppsa_cupy as bp
from bppsa_cupy.plan.algorithms import blelloch, hybrid, linear
from bppsa_cupy.plan.schedule import up_sweep_levels
from bppsa_cupy.tools.plan import main
from bppsa_cupy.tools.plans.flops import critical_steps, flops

MASK = np.array([[1, 0, 1, 0, 0, 0, 0, 0, 1]]).reshape(1, 1, 3, 3) * np.ones((2, 1, 1, 1), int)


def network(masked):
    mask = MASK if masked else None
    layers = [bp.Conv2d(1, 2, 3, padding=1, mask=mask), bp.ReLU(), bp.MaxPool2d(2), bp.Flatten()]
    return bp.Sequential([*layers, bp.Linear(8, 3), bp.Tanh()], input_shape=(1, 4, 4), seed=0, device="host")


def only_chain(facts, position=0):
    (chain,) = facts["networks"][position]["chains"]
    return chain


@settings(max_examples=60)
@given(st.integers(0, 20), st.randoms(use_true_random=False), st.data())
def test_critical_steps_are_those_of_the_longest_chains(n, random, data):
    schedule = data.draw(
        st.sampled_from([linear(n), blelloch(n), hybrid(n, random.randint(0, up_sweep_levels(n)))])
    )
    work = [random.randint(0, 3) for _ in schedule.steps]
    critical, longest = critical_steps(schedule, work)
    made = {step.out: position for position, step in enumerate(schedule.steps)}
    chains = []

    def walk(position, later):
        chain = (position, *later)
        step = schedule.steps[position]
        operands = [made[s] for s in (step.left, step.right) if s in made]
        if not operands:
            chains.append(chain)
        for operand in operands:
            walk(operand, chain)

    for position in range(len(work)):
        walk(position, ())
    lengths = [sum(work[p] for p in chain) for chain in chains]
    assert longest == max(lengths, default=0)
    on_one = {p for chain, length in zip(chains, lengths, strict=True) if length == longest for p in chain}
    assert {p for p, flag in enumerate(critical) if flag} == on_one


def test_every_step_by_hand():
    chain = only_chain(flops(network(False).plan(batch_size=7, schedules=["linear"])))
    # a_1 Tanh, a_2 Linear, a_3 MaxPool2d, a_4 ReLU, a_5 Conv2d; v(5) needs a_1 to a_4.
    by_name = {schedule["name"]: schedule for schedule in chain["schedules"]}
    assert list(by_name) == ["linear", "blelloch", "paper's hybrid", "computed"]
    paths = [schedule["critical_path_flop"] for schedule in by_name.values()]
    assert by_name["computed"]["critical_path_flop"] == min(paths)
    assert [s["flop"] for s in by_name["linear"]["steps"]] == [2 * 3, 2 * 24, 2 * 32, 2 * 32]
    assert [s["dense_flop"] for s in by_name["linear"]["steps"]] == [18, 48, 2 * 32 * 8, 2 * 32 * 32]
    assert all(s["critical"] for s in by_name["linear"]["steps"])
    assert by_name["linear"]["flop"] == by_name["linear"]["critical_path_flop"] == 2 * 91
    products = [s for s in by_name["blelloch"]["steps"] if s["kind"] == "mm"]
    # M(2, 4) = MaxPool2dᵀ·Linearᵀ selects rows: 32 of 3 entries; as dense matrices 32·8·3.
    assert [(s["begin"], s["end"], s["flop"], s["dense_flop"]) for s in products] == [(2, 4, 192, 1536)]


def test_baseline_by_hand():
    chain = only_chain(flops(network(False).plan(batch_size=1, schedules=["linear"])))
    assert [(o["name"], o["flop"]) for o in chain["baseline"]] == [
        ("5 Tanh", 6),
        ("4 Linear", 48),
        ("2 MaxPool2d", 64),
        ("1 ReLU", 64),
    ]
    two = bp.Sequential(
        [bp.ReLU(), bp.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), bp.ReLU()],
        input_shape=(2, 5, 5),
        device="host",
    )
    chain = only_chain(flops(two.plan(batch_size=1, schedules=["linear"])))
    # 4 channels of 3×3 outputs, each from one channel of 3×3 weights, the padding included.
    assert chain["baseline"][1]["flop"] == 2 * 4 * 9 * 9
    assert chain["baseline"][1]["dense_flop"] == 2 * (2 * 25) * (4 * 9)


def test_the_full_network_beside_the_pruned_one():
    mask = np.zeros((2, 1, 3, 3))
    mask[:, :, 1, 1] = 1
    pruned = bp.Sequential(
        [bp.ReLU(), bp.Conv2d(1, 2, 3, padding=1, mask=mask), bp.ReLU()], input_shape=(1, 4, 4), device="host"
    )
    plan = pruned.plan(batch_size=1)
    facts = flops(plan)
    assert [n["network"] for n in facts["networks"]] == ["pruned", "full"]
    planned, full = only_chain(facts), only_chain(facts, 1)
    assert planned["elements"][1]["nnz"] == 32 and full["elements"][1]["nnz"] == 2 * 100
    assert planned["baseline"] == full["baseline"]  # dense, as the paper's
    assert [operator["flop"] for operator in planned["baseline"]] == [2 * 32, 2 * 16 * 18]
    for mine, theirs in zip(planned["schedules"][:-1], full["schedules"][:-1], strict=True):
        assert mine["flop"] <= theirs["flop"]
        assert [s["dense_flop"] for s in mine["steps"]] == [s["dense_flop"] for s in theirs["steps"]]
    (alone,) = flops(plan, full=False)["networks"]
    assert alone == facts["networks"][0]


def test_a_schedule_that_was_left_out_is_counted():
    plan = network(False).plan(batch_size=1, schedules=["linear"])
    whole = network(False).plan(batch_size=1)
    by_name = [{s["name"]: s["flop"] for s in only_chain(flops(each))["schedules"]} for each in (plan, whole)]
    assert by_name[0].items() <= by_name[1].items() and "hybrid" in by_name[1]


def test_chains_of_no_network_have_the_entries_of_their_patterns_as_baseline():
    plan = plan_of(small_network())
    chain = only_chain(flops(plan))
    assert [o["flop"] for o in chain["baseline"]] == [2 * e["nnz"] for e in chain["elements"][:-1]]


def test_command_line(tmp_path, capsys):
    path = str(tmp_path / "p.h5")
    network(True).plan(batch_size=2).save(path)
    picture, numbers = tmp_path / "flops.png", tmp_path / "flops.json"
    assert main(["flops", path, "--plot", str(picture), "--json", str(numbers)]) == 0
    printed = capsys.readouterr().out
    assert "pruned network" in printed and "full network" in printed and "paper's hybrid" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
    facts = json.loads(numbers.read_text(encoding="utf-8"))
    assert [n["network"] for n in facts["networks"]] == ["pruned", "full"]
    assert main(["flops", path, "--planned-only"]) == 0
    assert "full network" not in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--plot", "--json"])
def test_outputs_are_checked_before_the_work(tmp_path, capsys, option):
    path = str(tmp_path / "p.h5")
    network(False).plan(batch_size=2).save(path)
    assert main(["flops", path, option, str(tmp_path / "none" / "x.png")]) == 1
    assert capsys.readouterr().err.startswith("error: ")
