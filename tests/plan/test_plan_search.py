"""The schedule search: against brute force over all schedules, and over the class by the list scheduler."""

from itertools import cycle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_cases import Table, all_schedules, tables

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan import Budget, Chain, Element
from bppsa_cupy.plan.algorithms import blelloch, hybrid, linear, paper_hybrid
from bppsa_cupy.plan.cost import MODELS, schedule_cost
from bppsa_cupy.plan.file.check_schedule import check_schedule
from bppsa_cupy.plan.search.candidates import Reach, every_choice, make_candidate
from bppsa_cupy.plan.search.search import Search
from bppsa_cupy.plan.search.segment_costs import SegmentCosts, searched_segments
from bppsa_cupy.plan.sizes import ChainSizes


def shortest_path(costs):
    """A schedule with the shortest critical path for unbounded workers, of little work."""
    reach = Reach(costs, costs.classes)
    return make_candidate(costs, "the shortest path", reach.within(reach.length))


@pytest.mark.parametrize(("n", "count"), [(0, 1), (1, 1), (2, 1), (3, 2), (4, 8), (5, 68), (6, 1284)])
def test_all_schedules_of_a_short_chain(n, count):
    expected = {tuple(sorted(s[1:4] for s in schedule.steps)) for schedule in all_schedules(n)}
    found = {
        tuple(sorted((int(i), int(splits[i, j]), int(j)) for i, j in np.argwhere(splits)))
        for splits in every_choice(n)
    }
    assert found == expected and len(found) == count
    assert all(splits.shape == (n + 1, n + 1) for splits in every_choice(n))


@settings(max_examples=60)
@given(tables(most=5))
def test_unbounded_workers_against_brute_force_over_all_schedules(table):
    schedules = list(all_schedules(table.n))
    shortest = min(table.critical_path(schedule) for schedule in schedules)
    found = shortest_path(table.costs)
    assert found.critical_path == pytest.approx(shortest, rel=1e-9)
    assert table.critical_path(found.schedule) == pytest.approx(shortest, rel=1e-9)
    assert Search(table.costs).reach.length == pytest.approx(shortest, rel=1e-9)
    # Of the shortest ones, the search over all schedules takes one of least work.
    best = Search(table.costs).best()
    work = min(sum(table.seconds(s)) for s in schedules if table.critical_path(s) <= shortest * (1 + 1e-9))
    assert sum(table.seconds(best.schedule)) == pytest.approx(work, rel=1e-9)


@settings(max_examples=5)
@given(tables(least=6))
def test_six_elements_against_brute_force_over_all_schedules(table):
    shortest = min(table.critical_path(schedule) for schedule in all_schedules(6))
    assert shortest_path(table.costs).critical_path == pytest.approx(shortest, rel=1e-9)


@settings(max_examples=40)
@given(tables(most=5), st.integers(1, 4))
def test_some_workers_against_brute_force_over_all_schedules(table, workers):
    least = min(table.makespan(schedule, workers) for schedule in all_schedules(table.n))
    class_ = Search(table.costs)
    found = class_.best(workers)
    assert found.seconds == pytest.approx(least, rel=1e-9)
    assert table.makespan(found.schedule, workers) == found.seconds
    assert class_.lower_bound(workers) <= least * (1 + 1e-9)


@settings(max_examples=20)
@given(tables(least=7, most=12), st.integers(1, 6))
def test_longer_chains_against_brute_force_over_the_class(table, workers):
    class_ = Search(table.costs)
    found = class_.best(workers)
    times = [table.makespan(candidate.schedule, workers) for candidate in class_.candidates]
    assert found.seconds == min(times) == table.makespan(found.schedule, workers)
    assert [candidate.makespan(workers) for candidate in class_.candidates] == times
    assert class_.lower_bound(workers) <= found.seconds * (1 + 1e-9)
    for candidate in class_.candidates:
        check_schedule(candidate.schedule)
    least = class_.reach.length
    assert class_.best().seconds == pytest.approx(least, rel=1e-9)
    assert all(table.critical_path(c.schedule) >= least * (1 - 1e-9) for c in class_.candidates)


@settings(max_examples=20)
@given(tables(least=2, most=20))
def test_never_longer_than_the_papers_schedules(table):
    n = table.n
    members = [linear(n), blelloch(n), paper_hybrid(n), *(hybrid(n, k) for k in range(n.bit_length()))]
    class_ = Search(table.costs)
    for workers in (1, 2, 3, n):
        found = class_.best(workers).seconds
        assert all(found <= table.makespan(schedule, workers) for schedule in members)
    assert all(class_.best().seconds <= table.critical_path(schedule) for schedule in members)


@settings(max_examples=20)
@given(tables(least=7, most=14))
def test_deadlines_are_kept(table):
    costs = table.costs
    reach = Reach(costs, costs.classes)
    for factor in (1.0, 1.1, 1.5, 4.0):
        made = make_candidate(costs, "", reach.within(reach.length * factor))
        assert table.critical_path(made.schedule) <= reach.length * factor * (1 + 1e-9)


def test_ties_go_to_the_hybrid_of_fewest_levels():
    search = Search(Table(5, lambda: 0).costs)
    assert [search.best(workers).schedule.levels for workers in (1, 2, None)] == [0, 0, 0]


@settings(max_examples=40)
@given(tables(least=2, most=9))
def test_the_work_that_none_falls_below(table):
    """Of every vector the cheapest matrix times a vector, with the cheapest last product of that matrix."""
    last = {(i, j): min((table.mm[i, k, j] for k in range(i + 1, j)), default=0) for i, j in table.mv}
    least = sum(min(table.mv[k, j] + last[k, j] for k in range(1, j)) for j in range(2, table.n + 1))
    assert Search(table.costs).reach.least_work == pytest.approx(least)


def test_times_below_a_second_count():
    table = Table(6, cycle([0.03, 0.002, 0.01]).__next__)
    shortest = min(table.critical_path(schedule) for schedule in all_schedules(6))
    assert shortest < 1 and Search(table.costs).best().seconds == pytest.approx(shortest)


# ---- the memory limit ----


@settings(max_examples=20)
@given(tables(least=3, most=9), st.integers(1, 5))
def test_schedules_over_the_memory_limit_are_left_out(table, longest):
    def fits(schedule):
        return all(step.kind == "mv" or step.end - step.begin <= longest for step in schedule.steps)

    class_ = Search(table.costs, fits)
    found = class_.best(4)
    assert fits(found.schedule)
    fitting = [table.makespan(c.schedule, 4) for c in class_.candidates if fits(c.schedule)]
    assert found.seconds == min(fitting)


def test_the_serial_scan_where_nothing_fits():
    table = Table(8, lambda: 1)
    found = Search(table.costs, lambda schedule: False).best(4)
    assert found.schedule.steps == linear(8).steps and found.seconds == 7


# ---- costs of a chain ----


def dense_chain(n, size=3, shared=False):
    return Chain((Element("J", Pattern.dense(size, size), shared),) * n)


def costs_of(chain, model="ideal", batch=2):
    counts = ChainSizes(chain, searched_segments(chain))
    return counts, SegmentCosts.of(counts, Budget(batch, 4, model=MODELS[model]))


def test_equal_segments_share_a_class():
    _, costs = costs_of(dense_chain(30))
    assert costs.mm.shape == (1, 1) and costs.mm[0, 0] == 2 * 27 and costs.mv[0] == 2 * 9


@pytest.mark.parametrize("model", list(MODELS))
def test_costs_are_those_of_the_cost_model(model):
    parts = [Pattern.dense(4, 2), Pattern.diagonal(4), Pattern.dense(3, 4), Pattern.diagonal(3)] * 2
    parts[4] = Pattern.dense(2, 3)
    parts[5] = Pattern.diagonal(2)
    parts[6], parts[7] = Pattern.dense(5, 2), Pattern.dense(1, 5)
    chain = Chain(tuple(Element("J", pattern, k % 2 == 0) for k, pattern in enumerate(parts)))
    counts, costs = costs_of(chain, model)
    for candidate in Search(costs).candidates[::7]:
        cost = schedule_cost(counts, candidate.schedule, Budget(2, 4, 3, MODELS[model]))
        assert cost.seconds == pytest.approx(candidate.makespan(3), rel=1e-12)
        assert cost.critical_path == pytest.approx(candidate.critical_path, rel=1e-12)


def test_long_chains_of_different_elements_are_searched_over_aligned_segments():
    chain = Chain(
        tuple(
            Element("J", Pattern((8, 8), np.arange(9), np.full(8, k % 8)), bool(k // 8 % 2))
            for k in range(70)
        )
    )
    segments = set(map(tuple, searched_segments(chain).tolist()))
    assert len(segments) < 3 * 70 and min(begin for begin, _ in segments) == 1
    steps = {step.out for k in range(7) for step in hybrid(70, k).steps if step.kind == "mm"}
    assert steps <= segments
    _, costs = costs_of(chain)
    assert Search(costs).best(8).seconds <= Search(costs).candidates[0].makespan(8)


def test_many_equal_elements():
    _, costs = costs_of(dense_chain(300, 2))
    class_ = Search(costs)
    # 299 steps of 8 multiply-adds serially; two levels of 8 and products of 16 halve it for two workers.
    assert class_.best(1).seconds == 299 * 8
    assert class_.best(2).seconds < 299 * 8
    assert class_.reach.length <= 8 * 8 + 16 * 9
