"""bppsa-plan: each command runs, and its numbers are those of the planner, the paper and counts by hand."""

import json

import numpy as np
import pytest
import scipy.sparse
from commands import command, error_line, folder  # noqa: F401  folder is a fixture
from plan_cases import edited, general_chains, plan_of, small_network

import bppsa_cupy as bp
from bppsa_cupy.models import build_model
from bppsa_cupy.pipeline import SCHEDULES as PIPELINES
from bppsa_cupy.plan import Plan
from bppsa_cupy.tools.plans.pipeline import stage_memory

pytestmark = pytest.mark.usefixtures("folder")
main = command("bppsa-plan")
LENET5 = "lenet5 --device host --batch-size 4 --input-shape 1,16,16"


def run_plan(words):
    return main([str(word) for word in (words.split() if isinstance(words, str) else words)])


def facts_of(words, capsys):
    capsys.readouterr()
    assert run_plan(f"{words} --json") == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def lenet5():
    return build_model("lenet5", device="host")


def test_build_show_verify_and_draw(capsys):
    words = "build model.py:small --device host -o p.h5 --schedules linear,hybrid --levels 1 --batch-size 8"
    assert run_plan(f"{words} --workers 3") == 0
    facts = facts_of("show p.h5", capsys)
    assert (facts["batch_size"], facts["workers"]) == (8, 3)
    (chain,) = facts["chains"]
    assert [(s["name"], s["levels"]) for s in chain["schedules"]] == [("linear", None), ("hybrid", 1)]
    serial = chain["schedules"][0]
    assert serial["multiply_adds"] == 8 * sum(e["nnz"] for e in chain["elements"][:-1])
    assert sum(level["mv"] for level in serial["by_level"]) == len(chain["elements"]) - 1
    for words in ("show p.h5", "verify p.h5 --model model.py:small", "draw p.h5 -o p.png",
                  "draw p.h5 --schedule linear -o p.svg"):  # fmt: skip
        assert run_plan(words) == 0
    assert run_plan("verify p.h5 --model model.py:wide") == 1
    assert "5 in the plan, 6 in the network" in error_line(capsys)


def test_a_term_of_another_entry_is_found(capsys):
    plan_of(small_network(), *general_chains()).save("p.h5")

    def edit(file):
        product = next(g for g in file["products"].values() if "a_position" in g)
        product["a_position"][0] += 1

    assert run_plan(["verify", edited("p.h5", "broken.h5", edit)]) == 1
    assert "broken.h5: product " in error_line(capsys)


def test_planned_products(capsys):
    a = scipy.sparse.random_array((12, 9), density=0.4, rng=np.random.default_rng(0), format="csr")
    bp.plan_gram(a, weights=True, triangle="upper").save("gram.h5")
    assert run_plan("show gram.h5") == 0 and run_plan("verify gram.h5") == 0
    product = bp.plan_product(a.T, a, bp.Pattern.diagonal(9))
    product.save("product.h5")
    facts = facts_of("show product.h5", capsys)
    assert [(f["shape"], f["nnz"]) for f in facts["factors"]] == [
        (list(pattern.shape), pattern.nnz) for pattern in product.factors
    ]
    assert [(p["nnz"], p["multiply_adds"]) for p in facts["products"]] == [
        (m.many.pattern.nnz, m.many.multiply_adds) for m in product.multiplications
    ]
    assert run_plan("show product.h5") == 0 and run_plan("verify product.h5") == 0

    def edit(file):
        group = file["products"][sorted(file["products"])[0]]
        group.attrs["multiply_adds"] += 1

    assert run_plan(["verify", edited("product.h5", "broken.h5", edit)]) == 1
    assert "multiply-adds" in error_line(capsys)


# ---- explain ----


def test_explain(capsys):
    assert run_plan(f"build {LENET5} -o p.h5") == 0
    facts = facts_of("explain p.h5 --workers 3,1 --batch-size 2", capsys)
    (chain,) = facts["chains"]
    assert facts["batch_size"] == 2 and [row["workers"] for row in chain["workers"]] == [1, 3]
    elements = Plan.load("p.h5").chains[0].chain.elements
    assert chain["baseline"] == 2 * sum(element.vjp_terms for element in elements[:-1])
    serial = chain["schedules"][0]
    assert (serial["mv"], serial["mm"], serial["depth"]) == (10, 0, 10)
    assert chain["workers"][0]["critical_paths"]["linear"] == serial["multiply_adds"]
    assert serial["critical_path"] == serial["multiply_adds"] and chain["workers"][0]["levels"] == 0
    assert run_plan("explain p.h5") == 0


# ---- ranks ----


def test_build_show_and_draw_over_ranks(capsys):
    assert run_plan(f"build {LENET5} -o p.h5 --partition 0,4,8,12 --levels 1") == 0
    plan = Plan.load("p.h5")
    assert plan.partition == bp.Partition((0, 4, 8, 12)) and plan.workers == 3
    facts = facts_of("show p.h5", capsys)
    (chain,) = facts["chains"]
    sizes, serial = plan.chains[0], chain["schedules"][0]["over_ranks"]
    # v(4) goes from the last layers to the middle ones, v(7) from there to the first.
    moved = 4 * (sizes.values_sizes(np.array([[0, 5], [0, 8]]), 4).sum())
    assert [row["layers"] for row in serial] == [[0, 4], [4, 8], [8, 12]]
    assert [row["sent"] for row in serial] == [0, 1, 1] and [row["received"] for row in serial] == [1, 1, 0]
    assert sum(row["sent_bytes"] for row in serial) == moved
    for schedule in chain["schedules"]:
        rows = schedule["over_ranks"]
        assert sum(row["sent_bytes"] for row in rows) == sum(row["received_bytes"] for row in rows)
        assert [sum(row[kind] for row in rows) for kind in ("mv", "mm")] == [
            sum(level[kind] for level in schedule["by_level"]) for kind in ("mv", "mm")
        ]
    paths = facts_of("explain p.h5", capsys)["over_ranks"]
    assert paths == plan.critical_paths(plan.batch_size, plan.partition) and paths["bp"] < paths["blelloch"]
    assert run_plan("show p.h5") == 0 and run_plan("explain p.h5") == 0
    assert run_plan("draw p.h5 -o p.png") == 0


@pytest.mark.parametrize("options", [
    "--partition 0,4", "--partition 0,4,12 --rank-count 3", "--partition 0,4,12 --balance measured",
    "--balance measured", "--partition 4,0,12", "--rank-count 2 --workers 3",
    "--rank-count 2 --memory-limit 10",
])  # fmt: skip
def test_contradictions_are_stated(capsys, options):
    assert run_plan(f"build {LENET5} -o p.h5 {options}") == 1
    assert error_line(capsys)


# ---- pipelines ----


def test_a_pipeline(capsys, lenet5):
    words = "pipeline lenet5 --device host --batch-size 8"
    facts = facts_of(f"{words} --ppv 1,3", capsys)
    placement = bp.Placement(lenet5, (1, 3))
    assert (facts["ppv"], facts["stale_share"]) == ([1, 3], placement.stale_share)
    assert [stage["layers"] for stage in facts["stages"]] == ["1", "2 to 3", "4 to 5"]
    assert tuple(stage["weights"] for stage in facts["stages"]) == placement.weights
    (stale,) = facts["schedules"]
    assert [(row["staleness"], row["live_passes"]) for row in stale["stages"]] == [(4, 5), (2, 3), (0, 1)]
    memory = stage_memory(placement, "stale", 8)
    assert [row["bytes"]["total"] for row in stale["stages"]] == [row.total for row in memory]
    everything = f"{words} --ppv balanced:2 --pipeline all --micro-batches 4"
    facts = facts_of(everything, capsys)
    micro = {schedule["name"]: schedule["micro_batches"] for schedule in facts["schedules"]}
    assert micro == {name: 4 if kind.micro else 1 for name, kind in PIPELINES.items()}
    assert run_plan(f"{everything} --draw p.png") == 0


@pytest.mark.parametrize("options", [
    "--ppv 3,2", "--ppv 5", "--ppv balanced:5", "--ppv 1 --micro-batches 2",
    "--ppv 1 --micro-batches 9 --pipeline gpipe", "--ppv 1 --draw p.bmp",
])  # fmt: skip
def test_pipelines_that_are_refused(capsys, options):
    assert run_plan(f"pipeline lenet5 --device host --batch-size 8 {options}") == 1
    assert error_line(capsys)
