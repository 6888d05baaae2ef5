"""The cost model: exact counts by hand, and a list schedule that respects what steps need."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import plan_of, random_chain, small_network

import bppsa_cupy as bp
from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import Budget, Chain, Element
from bppsa_cupy.plan.algorithms import blelloch, hybrid, linear
from bppsa_cupy.plan.cost import MODELS, find_model, list_schedule, schedule_cost, vjp_seconds
from bppsa_cupy.plan.search import compute_schedule, searched_segments
from bppsa_cupy.plan.sizes import ChainSizes


def dense_chain(n, size):
    return Chain((Element("J", Pattern.dense(size, size), False),) * n)


def counts_of(chain):
    return ChainSizes(chain, searched_segments(chain))


@settings(max_examples=80)
@given(st.integers(0, 40), st.integers(1, 6), st.randoms(use_true_random=False))
def test_list_schedule_respects_operands_and_workers(n, workers, random):
    schedule = blelloch(n)
    seconds = [random.choice([0.0, 1.0, 2.5, random.random()]) for _ in schedule.steps]
    placed, times = list_schedule(schedule, seconds, workers)
    starts, makespan, critical = times.starts, times.seconds, times.critical_path
    ends = {s.out: t + d for s, t, d in zip(placed.steps, starts, seconds, strict=True)}
    by_worker = {}
    for step, start, length in zip(placed.steps, starts, seconds, strict=True):
        assert all(ends.get(operand, 0.0) <= start for operand in (step.left, step.right))
        assert 0 <= step.worker < workers
        by_worker.setdefault(step.worker, []).append((start, start + length))
    for spans in by_worker.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert makespan == max(ends.values(), default=0.0)
    assert max(critical, sum(seconds) / workers) - 1e-9 <= makespan <= sum(seconds) + 1e-9
    assert [s._replace(worker=0) for s in placed.steps] == [s._replace(worker=0) for s in schedule.steps]
    again, same = list_schedule(schedule, seconds, workers)
    assert again == placed and same.starts.tolist() == starts.tolist() and same[2:] == times[2:]


def test_enough_workers_reach_the_critical_path():
    schedule = blelloch(30)
    _, times = list_schedule(schedule, [1.0] * len(schedule.steps), 100)
    used = sum(1 for level in schedule.by_level() if level)
    assert times.seconds == times.critical_path <= used


def test_no_worker_is_an_error():
    with pytest.raises(PlanError, match="at least 1"):
        list_schedule(linear(3), [1.0, 1.0], 0)


def test_cost_of_a_dense_chain_by_hand():
    counts = counts_of(dense_chain(4, 3))
    cost = schedule_cost(counts, blelloch(4), Budget(2, 4, 8))
    # L0: v(2) and M(2, 4); L1: v(4); the down-sweep: v(3) of M(2, 3) and v(2).
    assert [s.step.out for s in cost.steps] == [(0, 2), (2, 4), (0, 4), (0, 3)]
    assert [s.multiply_adds for s in cost.steps] == [2 * 9, 2 * 27, 2 * 9, 2 * 9]
    assert [s.kind for s in cost.steps] == ["csr_mv", "dense", "csr_mv", "csr_mv"]
    assert [s.nnz for s in cost.steps] == [3, 9, 3, 3]
    # Values of matrix, vector in, vector out; 4 bytes an index.
    assert cost.steps[0].bytes == 4 * 2 * (9 + 3 + 3) + 4 * 9
    assert cost.steps[1].bytes == 4 * 2 * 27 + 4 * 18
    assert cost.critical_path == 54 + 18 and cost.seconds == 72
    assert cost.multiply_adds == 18 * 3 + 54


def test_shared_products_do_not_grow_with_the_batch():
    chain = Chain((Element("J", Pattern.dense(3, 3), True),) * 4)
    cost = schedule_cost(counts_of(chain), blelloch(4), Budget(50, 4))
    assert [s.multiply_adds for s in cost.steps] == [450, 27, 450, 450]


def test_the_computed_schedule_follows_the_workers():
    # Two samples' worth of 1×1 matrices: a product costs as much as a step of the serial scan.
    counts = counts_of(dense_chain(63, 1))
    one = compute_schedule(counts, Budget(2, 4))
    assert one.levels == 0 and one.steps == linear(63).steps
    budget = Budget(2, 4, 32)
    many = compute_schedule(counts, budget)
    seconds = schedule_cost(counts, many, budget).seconds
    # Products of 1×1 matrices: v(63) is as far as 62 elements are deep.
    assert seconds <= min(schedule_cost(counts, hybrid(63, k), budget).seconds for k in range(6))
    assert compute_schedule(counts, Budget(2, 4, 100)).depth == math.ceil(math.log2(63))


def test_the_computed_schedule_follows_the_memory_limit():
    counts = counts_of(dense_chain(63, 1))
    budget = Budget(2, 4, 32)
    assert compute_schedule(counts, replace(budget, memory=1)).steps == linear(63).steps
    free = compute_schedule(counts, budget)
    needed = budget.bytes(counts, free)
    limited = compute_schedule(counts, replace(budget, memory=needed - 1))
    assert budget.bytes(counts, limited) < needed
    assert compute_schedule(counts, replace(budget, memory=needed)) == free


def test_chains_too_long_to_search_take_the_best_number_of_levels(monkeypatch):
    budget = Budget(2, 4, 32)
    monkeypatch.setattr("bppsa_cupy.plan.search.segment_costs.MOST_ELEMENTS", 62)
    counts = counts_of(dense_chain(63, 1))
    seconds = [schedule_cost(counts, hybrid(63, k), budget).seconds for k in range(6)]
    assert compute_schedule(counts, budget).levels == seconds.index(min(seconds))
    assert compute_schedule(counts, replace(budget, memory=1)).levels == 0
    assert plan_of(dense_chain(63, 1), workers=32, model="ideal").schedule(0, "hybrid").levels is not None


def test_a_layers_vjp_counts_as_it_runs(tmp_path):
    mask = np.zeros((8, 4, 3, 3), bool)
    mask[0, 0, 0, 0] = True
    layers = [
        bp.Conv2d(2, 4, 3, padding=1),
        bp.Conv2d(4, 8, 3, padding=1, mask=mask),
        bp.ReLU(),
        bp.Flatten(),
    ]
    layers += [bp.Linear(8 * 6 * 6, 5)]
    net = bp.Sequential(layers, input_shape=(2, 6, 6), device="host")
    (chain,) = net.chains()
    # The Jacobian of the masked one has 5 x 5 entries; its VJP goes by the list of its one weight, in the
    # time of some in a dense one; with 7 of 10 weights it runs over all.
    assert [e.pattern.nnz for e in chain.elements[:3]] == [288 * 5, 288, 25]
    assert [e.vjp_terms for e in chain.elements[:3]] == [288 * 5, 288, 36 * 3]
    assert vjp_seconds(chain, Budget(3, 4)) == 3 * (288 * 5 + 288 + 36 * 3)
    dense = layers[1].with_masks({"weight": np.random.default_rng(0).random(mask.shape) < 0.7})
    assert dense.vjp_multiply_adds((4, 6, 6)) == 36 * 4 * 8 * 9
    net.plan(batch_size=1, schedules=["linear"]).save(tmp_path / "p.h5")
    assert bp.Plan.load(tmp_path / "p.h5").chains[0].chain == chain


def test_fill_in_is_avoided():
    # Products of these 40-row bands fill in; for few workers a nearly serial scan is the quickest.
    band = Pattern.from_scipy(sum(scipy.sparse.eye_array(40, k=k, format="csr") for k in (-3, -1, 0, 1, 3)))
    chain = Chain((Element("J", band, False),) * 16)
    counts, budget = counts_of(chain), Budget(1, 4, 4)
    found = schedule_cost(counts, compute_schedule(counts, budget), budget)
    assert found.multiply_adds < schedule_cost(counts, blelloch(16), budget).multiply_adds / 4


@pytest.mark.parametrize("model", list(MODELS))
def test_models_predict_more_for_more_work(model):
    counts = counts_of(small_network())
    small, large = (
        schedule_cost(counts, linear(6), Budget(b, 4, 2, find_model(model))).seconds for b in (1, 10_000)
    )
    assert 0 < small < large


def test_unknown_model():
    with pytest.raises(PlanError, match="ideal, host, cuda"):
        find_model("x")


def test_every_method_is_predicted():
    prediction = plan_of(small_network()).predict(4, "host")
    assert prediction.model == "host, uncalibrated"
    assert list(prediction.seconds) == ["bp", "linear", "blelloch", "hybrid"]
    assert min(prediction.seconds.values()) > 0


def test_beyond_the_batch_size_back_propagation_is_left():
    assert list(plan_of(small_network()).predict(5, "cuda").seconds) == ["bp"]


def test_random_chains_have_consistent_totals():
    counts = counts_of(random_chain(12, 2))
    cost = schedule_cost(counts, blelloch(12), Budget(3, 8, 3))
    assert cost.bytes == sum(step.bytes for step in cost.steps)
    assert cost.seconds >= cost.critical_path
