"""The schedule search: against brute force over all schedules, and over the class by the list scheduler."""

from itertools import cycle, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_cases import Table, all_schedules, tables

from bppsa_cupy.csr import Pattern
from bppsa_cupy.plan import Budget, Chain, Element
from bppsa_cupy.plan.algorithms import blelloch, every_hybrid, hybrid, linear, paper_hybrid
from bppsa_cupy.plan.cost import MODELS, schedule_cost
from bppsa_cupy.plan.file.check_schedule import check_schedule
from bppsa_cupy.plan.search.candidates import Reach, make_candidate, members, segment_sets
from bppsa_cupy.plan.search.search import Search
from bppsa_cupy.plan.search.segment_costs import SegmentCosts, is_searched, searched_segments
from bppsa_cupy.plan.sizes import ChainSizes


def shortest_path(costs):
    """A schedule with the shortest critical path for unbounded workers, of little work."""
    reach = Reach(costs, costs.classes)
    return make_candidate(costs, reach.within(reach.length))


@settings(max_examples=60)
@given(tables(most=5))
def test_unbounded_workers_against_brute_force_over_all_schedules(table):
    shortest = min(table.critical_path(schedule) for schedule in all_schedules(table.n))
    found = shortest_path(table.costs)
    assert found.critical_path == pytest.approx(shortest, rel=1e-9)
    assert table.critical_path(found.schedule) == pytest.approx(shortest, rel=1e-9)
    search = Search(table.costs)
    assert search.reach.length == pytest.approx(shortest, rel=1e-9)
    assert search.best().seconds == pytest.approx(shortest, rel=1e-9)


@settings(max_examples=5)
@given(tables(least=6))
def test_six_elements_against_brute_force_over_all_schedules(table):
    shortest = min(table.critical_path(schedule) for schedule in all_schedules(6))
    assert shortest_path(table.costs).critical_path == pytest.approx(shortest, rel=1e-9)


@settings(max_examples=40)
@given(tables(most=5), st.integers(1, 4))
def test_the_bound_for_some_workers_against_brute_force_over_all_schedules(table, workers):
    least = min(table.makespan(schedule, workers) for schedule in all_schedules(table.n))
    class_ = Search(table.costs)
    assert class_.lower_bound(workers) <= least * (1 + 1e-9)
    assert class_.best(workers).seconds >= least


@settings(max_examples=20)
@given(tables(most=12), st.integers(1, 6))
def test_some_workers_against_brute_force_over_the_class(table, workers):
    class_ = Search(table.costs)
    found = class_.best(workers)
    times = [table.makespan(candidate.schedule, workers) for candidate in class_.candidates]
    assert found.seconds == min(times) == table.makespan(found.schedule, workers)
    assert [candidate.makespan(workers) for candidate in class_.candidates] == times
    for candidate in class_.candidates:
        check_schedule(candidate.schedule)
    least = class_.reach.length
    assert class_.best().seconds == pytest.approx(least, rel=1e-9)
    assert all(table.critical_path(c.schedule) >= least * (1 - 1e-9) for c in class_.candidates)


@settings(max_examples=20)
@given(tables(least=2, most=20))
def test_never_longer_than_the_papers_schedules(table):
    n = table.n
    own = [linear(n), blelloch(n), paper_hybrid(n), *(hybrid(n, k) for k in range(n.bit_length()))]
    class_ = Search(table.costs)
    for workers in (1, 2, 3, n):
        found = class_.best(workers).seconds
        assert all(found <= table.makespan(schedule, workers) for schedule in own)
    assert all(class_.best().seconds <= table.critical_path(schedule) for schedule in own)


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


# ---- the shortest paths over sets of segments ----


@settings(max_examples=60)
@given(tables(least=2, most=5), st.data())
def test_segments_that_are_left_out(table, data):
    """Against brute force over the schedules that take the others alone."""
    longer = [segment for segment in table.mv if segment[1] - segment[0] > 1]
    kept = data.draw(st.sets(st.sampled_from(longer))) if longer else set()
    classes = table.costs.classes.copy()
    for segment in set(longer) - kept:
        classes[segment] = -1

    def taken(step):
        return step.kind == "mv" or step.out in kept

    fitting = [s for s in all_schedules(table.n) if all(map(taken, s.steps))]
    shortest = min(table.critical_path(schedule) for schedule in fitting)
    reach = Reach(table.costs, classes)
    assert reach.length == pytest.approx(shortest)
    for factor in (1.0, 1.3, 4.0):
        schedule = make_candidate(table.costs, reach.within(factor * shortest)).schedule
        assert all(map(taken, schedule.steps))
        assert table.critical_path(schedule) <= factor * shortest * (1 + 1e-9)


def test_a_matrix_takes_the_tree_of_least_work_that_is_in_time():
    """M(1, 5) of two halves side by side is there in 6, of 11 s of work; one product after another in 9."""
    table = Table(5, lambda: 100)
    classes, mm, mv = table.costs.classes, table.costs.mm, table.costs.mv
    halves, one_by_one = (
        [(1, 2, 3, 5), (3, 4, 5, 5), (1, 3, 5, 1)],
        [(2, 3, 4, 3), (2, 4, 5, 3), (1, 2, 5, 3)],
    )
    for i, k, j, seconds in halves + one_by_one:
        mm[classes[i, k], classes[k, j]] = seconds
    for k, j in ((1, 2), (2, 3), (3, 4), (1, 5)):
        mv[classes[k, j]] = 1
    reach = Reach(table.costs, classes)
    assert reach.length == 7
    assert [reach.within(deadline)[1, 5] for deadline in (7, 9.9, 10, 1e6)] == [3, 3, 2, 2]


# ---- the class, member by member ----

#: Elements of the chain below, and the deadlines of each set of segments.
N, DEADLINES = 30, 10


@pytest.fixture(scope="module")
def costs():
    return Table(N, cycle([3, 5, 7, 100, 4, 11]).__next__).costs


@pytest.fixture(scope="module")
def found(costs):
    return list(members(costs))


def test_sets_of_segments(costs):
    """All, and those inside of blocks of 11 sizes from 8 elements on."""
    sizes = [int(2 * (N / 2) ** (k / 11)) for k in range(11)]
    blocks = [(size, N * k // 8) for size in dict.fromkeys(sizes) for k in range(8)]
    first, *others = segment_sets(costs)
    np.testing.assert_array_equal(first, costs.classes)
    for (size, start), classes in zip(blocks, others, strict=True):
        borders = [*range(1, start), *range(start, N + 1, size), N + 1]
        inside = {
            (begin, end) for x, y in pairwise(borders) for begin in range(x, y) for end in range(begin, y + 1)
        }
        expected = np.full_like(classes, -1)
        for begin, end in np.argwhere(costs.classes >= 0).tolist():
            if begin > 0 and ((begin, end) in inside or end == begin + 1):
                expected[begin, end] = costs.classes[begin, end]
        np.testing.assert_array_equal(classes, expected)


def test_members_are_the_hybrids_and_of_every_set_one_for_every_deadline(costs, found):
    hybrids, sets = every_hybrid(N), list(segment_sets(costs))
    assert [one.levels for one in found[: len(hybrids)]] == [one.levels for one in hybrids]
    others = found[len(hybrids) :]
    assert len(others) == DEADLINES * len(sets) and {one.levels for one in others} == {None}
    serial = found[0].seconds.sum()
    for number, classes in enumerate(sets):
        shortest = Reach(costs, classes).length
        for turn, one in enumerate(others[number * DEADLINES : (number + 1) * DEADLINES]):
            assert all(classes[begin, end] >= 0 for begin, _, end in one.splits.tolist() if begin)
            assert one.critical_path <= (serial / shortest) ** (turn / DEADLINES) * shortest * (1 + 1e-9)
    assert others[0].critical_path == min(one.critical_path for one in found) < serial


def test_over_ranks_others_than_hybrids_are_there_in_both_orders(costs, found):
    every = list(members(costs, ranks=True))
    hybrids = len(every_hybrid(N))
    late, early = every[hybrids::2], every[hybrids + 1 :: 2]
    assert len(late) == len(early) == len(found) - hybrids
    for one, other, alone in zip(late, early, found[hybrids:], strict=True):
        assert (one.early, other.early, alone.early) == (False, True, False)
        for each in (other, alone):
            np.testing.assert_array_equal(each.splits, one.splits)


@pytest.mark.parametrize("seconds", [(1, 1000), (0, 0)])
def test_one_deadline_where_nothing_is_shorter_than_the_serial_scan(seconds):
    costs = Table(12, lambda: seconds[0]).costs
    costs.mm[np.isfinite(costs.mm)] = seconds[1]
    assert len(list(members(costs))) == len(every_hybrid(12)) + len(list(segment_sets(costs)))


def test_operands_come_before_their_readers(found):
    for one in found:
        assert (one.operands < np.arange(len(one.operands))[:, None]).all()
        segments = one.splits[:, [0, 2]].tolist()
        for (begin, split, end), operands in zip(one.splits.tolist(), one.operands.tolist(), strict=True):
            for segment, at in zip(([begin, split], [split, end]), operands, strict=True):
                assert at == -1 if segment[1] - segment[0] == 1 else segments[at] == segment


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


@pytest.mark.parametrize("n", [0, 1, 2, 3, 63, 64])
def test_every_segment_of_a_short_chain_is_searched(n):
    patterns = [Pattern((8, 8), np.arange(9), np.full(8, k % 8)) for k in range(n)]
    chain = Chain(tuple(Element("J", pattern, k % 3 == 0) for k, pattern in enumerate(patterns)))
    expected = [(i, j) for i in range(1, n + 1) for j in range(i + 1, n + 2) if j <= n or j == i + 1]
    assert sorted(map(tuple, searched_segments(chain).tolist())) == expected


@pytest.mark.parametrize(("different", "every"), [(8, True), (9, False)])
def test_long_chains_of_few_different_elements_are_searched_over_every_segment(different, every):
    patterns = [Pattern((8, 8), np.arange(9), np.full(8, k % 8)) for k in range(8)]
    elements = [Element("J", patterns[k % 8], different == 9 and k == 0) for k in range(72)]
    assert len({(e.pattern.digest, e.shared) for e in elements}) == different
    segments = searched_segments(Chain(tuple(elements)))
    assert (len(segments) == 72 + 71 * 70 // 2) == every


def test_chains_of_up_to_1024_elements_are_searched():
    element = Element("J", Pattern.diagonal(1), True)
    assert [is_searched(Chain((element,) * n)) for n in (1023, 1024, 1025)] == [True, True, False]
