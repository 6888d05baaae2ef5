"""Costs against their definitions in plain Python: of steps, back-propagation, and what surrounds a scan."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import random_chain

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan import Budget, Chain, Element
from bppsa_cupy.plan.algorithms import blelloch, from_splits, hybrid, linear
from bppsa_cupy.plan.cost import preparation_seconds, schedule_cost, step_cost, vjp_seconds
from bppsa_cupy.plan.cost_model import LARGE_BYTES, CostModel, Link, Rate
from bppsa_cupy.plan.search import searched_segments
from bppsa_cupy.plan.search.search import Search
from bppsa_cupy.plan.sizes import ChainSizes

#: Each kind of work has a rate of its own, so that none is taken for another.
MODEL = CostModel(
    "made", Rate(100.0, 10.0, 70.0), 0.25, 0.5,
    {"csr_mv": Rate(40.0, 8.0, 20.0), "vjp": Rate(30.0, 3.0),
     "fill": Rate(1.0, 7.0), "transpose": Rate(1.0, 5.0)},
    Link(1.5, 64.0),
)  # fmt: skip
SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=15)
@given(st.integers(0, 12), SEEDS, st.integers(1, 4))
def test_each_step_costs_what_it_costs_alone(n, seed, batch):
    """Steps that are taken for alike are."""
    chain = random_chain(n, seed, 4)
    sizes, budget = ChainSizes(chain, searched_segments(chain)), Budget(batch, 8, 3, MODEL)
    for schedule in (linear(n), blelloch(n), hybrid(n, min(1, max(n - 1, 0).bit_length()))):
        assert_each_alone(sizes, schedule, budget)


def test_steps_whose_patterns_differ_are_not_alike():
    """Of many chains, since patterns are numbered by where they lie in memory."""
    for seed in range(60):
        chain = random_chain(5 + seed % 3, seed, 4)
        sizes = ChainSizes(chain, searched_segments(chain))
        assert_each_alone(sizes, blelloch(len(chain)), Budget(2, 8, 3, MODEL))


def assert_each_alone(sizes, schedule, budget):
    cost = schedule_cost(sizes, schedule, budget)
    assert list(cost.steps) == [step_cost(sizes, step, budget) for step in cost.schedule.steps]
    assert cost.multiply_adds == sum(step.multiply_adds for step in cost.steps)


def test_products_and_vectors_of_one_matrix_are_not_alike():
    """M(1, 3) = M(2, 3)·M(1, 2) and v(4) = M(3, 4)·v(3), all of one pattern."""
    chain = Chain((Element("J", Pattern.dense(3, 3), False),) * 4)
    schedule = from_splits("hybrid", 4, {(0, 2): 1, (0, 3): 1, (1, 3): 2, (0, 4): 3})
    sizes = ChainSizes(chain, searched_segments(chain))
    assert_each_alone(sizes, schedule, Budget(2, 4, 3, MODEL))


@settings(max_examples=30)
@given(st.integers(1, 12), SEEDS, st.integers(1, 4), st.sampled_from([4, 8]))
def test_a_step_by_its_patterns(n, seed, batch, itemsize):
    chain = random_chain(n, seed, 5)
    sizes = ChainSizes(chain, searched_segments(chain))
    dense = {}
    for begin in range(1, n + 1):
        dense[begin, begin + 1] = chain.elements[begin - 1].pattern.to_scipy().toarray().astype(int)
        for end in range(begin + 2, n + 2):
            dense[begin, end] = chain.elements[end - 2].pattern.to_scipy().toarray() @ dense[begin, end - 1]
    for step in blelloch(n).steps:
        cost = step_cost(sizes, step, Budget(batch, itemsize, 1, MODEL))
        right = (dense[step.right] > 0).astype(int)
        shared = {k: all(e.shared for e in chain.elements[k[0] - 1 : k[1] - 1]) for k in dense}
        samples = {k: 1 if shared[k] else batch for k in dense}
        values = right.sum() * samples[step.right]
        if step.kind == "mv":
            terms, per, indices = right.sum() * batch, batch, right.sum()
            values += (right.shape[0] + right.shape[1]) * batch
            assert (cost.kind, cost.nnz) == ("csr_mv", right.shape[0])
            work = MODEL.rates["csr_mv"]
        else:
            left = (dense[step.left] > 0).astype(int)
            out, per = right @ left, samples[step.out]
            terms, indices = out.sum() * per, right.sum() + left.sum()
            values += left.sum() * samples[step.left] + (out > 0).sum() * per
            assert cost.nnz == (out > 0).sum() and cost.kind == sizes.kind(step)
            work = MODEL.rate
        moved = values * itemsize + 4 * indices + sizes.map_bytes(step)
        assert (cost.multiply_adds, cost.bytes) == (terms, moved)
        arithmetic = terms / work.multiply_adds_per_second + terms / per / work.loops_per_second
        assert cost.seconds == pytest.approx(0.25 + max(arithmetic, moved / work.bytes_per_second))


@settings(max_examples=30)
@given(st.integers(0, 9), SEEDS, st.integers(1, 3), st.booleans())
def test_back_propagation_and_preparation(n, seed, batch, over_ranks):
    chain = random_chain(n, seed)
    owners = tuple(np.sort(np.random.default_rng(seed).integers(0, 3, n)).tolist()) if over_ranks else None
    budget = Budget(batch, 4, 3, MODEL, owners=owners)
    vjp, ranks = 0.0, [0.0] * 3
    for k, element in enumerate(chain.elements, 1):
        rows, columns = element.pattern.shape
        rank = owners[k - 1] if owners else 0
        if k < n:
            moved = (rows + columns) * batch * 4
            vjp += 0.5 + max(element.vjp_terms * batch / 30, moved / 3)
            if owners and owners[k] != rank:
                vjp += 1.5 + rows * batch * 4 / 64
            values = element.pattern.nnz * (1 if element.shared else batch)
            ranks[rank] += 0.5 + max(values / 1.0, (values * 4 + 4 * element.pattern.nnz) / 7)
        if k == 1 or element.shared:
            ranks[rank] += 0.5 + 2 * columns * batch * 4 / 5
    assert vjp_seconds(chain, budget) == pytest.approx(vjp)
    assert preparation_seconds(chain, budget) == pytest.approx(max(ranks) if n else 0.0)


def test_large_work_is_of_more_than_so_many_bytes():
    model = CostModel("made", Rate(1.0, 1.0), 0.0, 0.0, {"vjp": Rate(1.0, 2.0), "vjp large": Rate(1.0, 4.0)})
    assert model.work_seconds("vjp", 0, LARGE_BYTES) == LARGE_BYTES / 2
    assert model.work_seconds("vjp", 0, LARGE_BYTES + 4) == (LARGE_BYTES + 4) / 4
    assert model.work_seconds("fill", 0, LARGE_BYTES + 4) == LARGE_BYTES + 4


def test_loops_are_counted_where_their_width_is_known():
    model = CostModel("made", Rate(math.inf, math.inf, 2.0), 0.0, 0.0)
    assert model.work_seconds("terms", 12, 0, 3) == 2.0
    assert model.work_seconds("terms", 12, 0) == 0.0


def test_the_bound_of_a_search_is_work_or_path():
    chain = Chain(tuple(Element(f"{k}", Pattern.dense(3, 3), False) for k in range(6)))
    search = Search.of(ChainSizes(chain, searched_segments(chain)), Budget(2, 4))
    assert search.lower_bound(1) == search.reach.least_work > search.reach.length
    assert search.lower_bound(10**9) == search.reach.length
