"""Shortest paths and trees of least work, over sets of segments."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_cases import Table, all_schedules, tables

from bppsa_cupy.plan.search.candidates import Reach, make_candidate


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
        schedule = make_candidate(table.costs, "", reach.within(factor * shortest)).schedule
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
