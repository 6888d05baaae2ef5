"""Chains, and which products of them a plan holds."""

import numpy as np
import pytest
from plan_cases import plan_of, random_chain, small_network

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError, ShapeError
from bppsa_cupy.plan import Chain, ChainPlan, Element, chain_plan
from bppsa_cupy.plan.algorithms import blelloch, hybrid, linear
from bppsa_cupy.plan.chain_plan import multiply_chain
from bppsa_cupy.plan.memory import memory_plan
from bppsa_cupy.plan.schedule import BEGIN, KIND, LEVEL, Schedule, Step
from bppsa_cupy.plan.sizes import ChainSizes, counting


def reference(chain, begin, end):
    """The pattern of M(begin, end) by SciPy."""
    product = chain.elements[begin - 1].pattern.to_scipy()
    for element in chain.elements[begin : end - 1]:
        product = element.pattern.to_scipy() @ product
    return Pattern.from_scipy(product)


def square(*rows):
    """Of 4 columns, an entry a row."""
    return Pattern((4, 4), np.arange(5), np.array(rows))


P, Q = square(1, 2, 3, 0), square(0, 0, 1, 3)


@pytest.mark.parametrize(
    "order", [(P, P, Q, Q, P, P, P, Q), (P, Q, P, Q, Q, P, Q, P), (Q, Q, Q, P, Q, Q, P, P)]
)
def test_products_whose_factors_change_places_are_two(order):
    """At one level A B and B A, and products of one pattern by others."""
    chain = Chain(tuple(Element(f"{k}", pattern, False) for k, pattern in enumerate(order)))
    plan = plan_of(chain, levels=2)
    for name in ("blelloch", "hybrid"):
        for step in plan.schedule(0, name).steps:
            if step.kind == "mm":
                assert plan.chains[0].pattern(*step.out) == reference(chain, *step.out)


def test_ctrl_c_takes_effect_between_products(monkeypatch):
    asked = []
    monkeypatch.setattr(chain_plan, "interruptible", lambda: asked.append(None))
    monkeypatch.setattr(counting, "interruptible", lambda: asked.append(None))
    made = list(multiply_chain(random_chain(9, 1), [blelloch(9)], {}))
    assert len(asked) == len(made) > 3
    asked.clear()
    ChainSizes(Chain(tuple(Element("J", p, True) for p in (P, Q, P))), np.array([[1, 3], [2, 4]]))
    assert len(asked) == 2


@pytest.mark.parametrize("seed", range(6))
def test_the_order_of_steps_in_a_level_is_of_no_meaning(seed):
    chain = random_chain(8, seed, 12)
    table = blelloch(8).table
    table = table[np.lexsort((-table[:, BEGIN], -table[:, KIND], table[:, LEVEL]))]  # products first
    assert Step(1, 4, 6, 8, "mm", 0)[:4] in [tuple(row[:4]) for row in table] and table[0, BEGIN] == 6
    schedule, products = Schedule("blelloch", 8, table), {}
    list(multiply_chain(chain, [schedule], products))
    planned = ChainPlan(chain, {"blelloch": schedule}, products)
    for step in schedule.steps:
        if step.kind == "mm":
            assert planned.pattern(*step.out) == reference(chain, *step.out)
    assert memory_plan(planned.sizes, schedule, 90, 4) == memory_plan(planned.sizes, blelloch(8), 90, 4)


def test_lengths_of_vectors():
    chain = small_network()
    lengths = [chain.elements[0].pattern.shape[1], *(e.pattern.shape[0] for e in chain.elements)]
    assert [chain.length(k) for k in range(1, 8)] == lengths == chain.lengths[1:].tolist()
    assert Chain(()).length(1) == 0 and Chain(()).lengths[1:].tolist() == [0]


@pytest.mark.parametrize("shared", [(True, True, False, True), (False, True, True, False), (True,) * 4])
def test_segments_are_shared_where_all_elements_are(shared):
    chain = Chain(tuple(Element("J", P, one) for one in shared))
    segments = [(i, j) for i in range(5) for j in range(i + 1, 6)]
    expected = [i > 0 and all(shared[i - 1 : j - 1]) for i, j in segments]
    assert chain.all_shared(np.array(segments)).tolist() == expected
    assert [chain.shared(*segment) for segment in segments] == expected


def test_patterns_are_those_of_the_product():
    plan = plan_of(small_network())
    chain = plan.chains[0]
    for step in plan.schedule(0, "blelloch").steps:
        if step.kind == "mm":
            product = chain.pattern(*step.right).to_scipy() @ chain.pattern(*step.left).to_scipy()
            assert chain.pattern(*step.out) == Pattern.from_scipy(product)


def test_equal_products_are_made_once():
    element = Element("J", Pattern.dense(3, 3), True)
    plan = plan_of(Chain((element,) * 16), Chain((element,) * 7))
    assert len(plan.chains[0].products) == 1


def test_a_segment_that_no_schedule_computes():
    with pytest.raises(PlanError, match=r"\[2, 5\) is computed by none of linear"):
        plan_of(small_network(), schedules=["linear"]).chains[0].pattern(2, 5)


def test_missing_products_are_named():
    with pytest.raises(PlanError, match=r"product M\(3, 4\)·M\(2, 3\).*is missing"):
        ChainPlan(small_network(), {"hybrid": hybrid(6, 1)}, {})


def test_schedules_must_be_of_the_chain():
    with pytest.raises(PlanError, match="for 5 matrices, the chain has 6"):
        ChainPlan(small_network(), {"linear": linear(5)}, {})


def test_chains_must_fit_together():
    with pytest.raises(ShapeError, match=r"element 1 \(a\) has 3 rows and element 2 \(b\) has 2 columns"):
        Chain((Element("a", Pattern.dense(3, 2), True), Element("b", Pattern.dense(3, 2), True)))
