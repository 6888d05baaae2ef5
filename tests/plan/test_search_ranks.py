"""The search over ranks counts the messages: against the class, and where a matrix decides."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_cases import partitions
from plan_cases import random_chain
from search_cases import all_schedules

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan import Budget, Chain, Element, place
from bppsa_cupy.plan.algorithms import every_hybrid, linear
from bppsa_cupy.plan.cost import schedule_cost
from bppsa_cupy.plan.cost_model import CostModel, Link, Rate
from bppsa_cupy.plan.search import compute_schedule, search, searched_segments
from bppsa_cupy.plan.search.search import Search
from bppsa_cupy.plan.sizes import ChainSizes


def model(link):
    """A multiply-add a second, and a link."""
    return CostModel("test", Rate(1.0, math.inf), 0.0, 0.0, link=link)


def counted(chain):
    return ChainSizes(chain, searched_segments(chain))


def drawn(data, n, seed, link):
    """A random chain of n, and a budget over ranks."""
    partition, sizes = data.draw(partitions(n, 4)), counted(random_chain(n, seed))
    return sizes, Budget(2, 4, partition.ranks, model(link), owners=tuple(partition.owners.tolist()))


@settings(max_examples=12)
@given(st.integers(0, 5), st.integers(0, 2**32 - 1), st.data())
def test_against_brute_force_over_all_schedules(n, seed, data):
    """None is quicker than all choices of splits in both orders, and the hybrids in their own."""
    link = Link(data.draw(st.integers(0, 20)), data.draw(st.sampled_from([0.5, 4.0, 100.0, math.inf])))
    sizes, budget = drawn(data, n, seed, link)
    every = [*all_schedules(n), *all_schedules(n, early=True), *every_hybrid(n)]
    best = Search.of(sizes, budget).best(budget.workers)
    assert best.seconds >= min(schedule_cost(sizes, one, budget).seconds for one in every)
    assert schedule_cost(sizes, best.schedule, budget).seconds == best.seconds


@settings(max_examples=10)
@given(st.integers(7, 12), st.integers(0, 2**32 - 1), st.data())
def test_the_best_of_the_class_is_found(n, seed, data):
    sizes, budget = drawn(data, n, seed, Link(3.0, 8.0))
    found = schedule_cost(sizes, compute_schedule(sizes, budget), budget).seconds
    candidates = Search.of(sizes, budget).candidates
    assert found == min(schedule_cost(sizes, one.schedule, budget).seconds for one in candidates)
    assert found <= min(schedule_cost(sizes, one, budget).seconds for one in every_hybrid(n))


def test_a_rank_that_waits_for_vectors_makes_matrices_early():
    sizes = counted(random_chain(5, 0))
    budget = Budget(4, 4, 2, model(Link(0.0, math.inf)), owners=(0, 1, 1, 1, 1))
    search = Search.of(sizes, budget)
    late = [one.schedule for one in search.candidates if not one.early]
    assert search.best(2).candidate.early
    assert search.best(2).seconds < min(schedule_cost(sizes, one, budget).seconds for one in late)


def test_of_a_chain_that_is_not_searched_the_quickest_hybrid_is_taken(monkeypatch):
    """Of one level, of two and the serial scan, each of some chains."""
    monkeypatch.setattr(search, "is_searched", lambda chain: False)
    levels = set()
    for seed in range(40):
        sizes, budget = counted(random_chain(9, seed)), Budget(2, 4, 4, model(Link(0.0, math.inf)))
        every = {one.levels: schedule_cost(sizes, one, budget).seconds for one in every_hybrid(9)}
        found = compute_schedule(sizes, budget)
        assert schedule_cost(sizes, found, budget).seconds == min(every.values())
        levels.add(found.levels)
    assert levels >= {0, 1, 2}


def test_of_equal_times_the_least_work_is_taken_though_a_bound_says_no_more():
    """Time and work in binary fractions, as bounds are."""
    quick, lean = (
        SimpleNamespace(work=work, critical_path=path, makespan=lambda workers: 4.0, schedule=None)
        for work, path in ((6.0, 3.0), (4.0, 4.0))
    )

    class Given(Search):
        def __init__(self):
            self._placed, self._fits = None, lambda candidate: True

        def _each(self):
            yield from (quick, lean)

    assert Given().best(2).candidate is lean


#: a_1 and a_2 on rank 0 are 10×10, a_3 and a_4 on rank 1 are 1×10 and 1×1: while rank 0 works at v(2), rank 1
#: could make M(2, 4), a row, from a_2, 400 bytes, which takes it off the path to v(4).
SHAPES, OWNERS = ((10, 10), (10, 10), (1, 10), (1, 1)), (0, 0, 1, 1)


@pytest.mark.parametrize(("bytes_per_second", "travels"), [(40.0, True), (1.0, False)])
def test_a_matrix_travels_where_that_is_cheap(bytes_per_second, travels):
    chain = Chain(tuple(Element("J", Pattern.dense(*shape), False) for shape in SHAPES))
    budget = Budget(1, 4, 2, model(Link(0.0, bytes_per_second)), owners=OWNERS)
    sizes = counted(chain)
    best = compute_schedule(sizes, budget)
    messages = list(place(best, OWNERS, 2).messages())
    assert any(m.segment == (2, 3) for m in messages) == travels
    assert any(m.segment[0] for m in messages) == travels
    own, serial = (schedule_cost(sizes, one, budget).seconds for one in (best, linear(4)))
    # The serial scan: v(2) and v(3), 100 s each, v(3) travels, v(4) takes 10 s.
    assert serial == 200 + 40 / bytes_per_second + 10
    assert own < serial if travels else own == serial
    # Workers without messages between them would share the steps as for p = 2.
    shared = Search.of(sizes, Budget(1, 4, 2, model(Link(0.0, bytes_per_second))))
    assert shared.best(2).seconds < serial
