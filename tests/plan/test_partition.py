"""Partitions are as even as they can be, and a placement is a schedule whose messages never block."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_cases import equal_parts, partitions, placements
from refusals import assert_refused

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import Partition, place
from bppsa_cupy.plan.schedule import every_hybrid, linear

WEIGHTS = st.one_of(
    st.lists(st.integers(0, 9).map(float), max_size=7),
    st.lists(st.floats(0, 1e6, allow_subnormal=False), max_size=7),
)


def heaviest(weights, bounds):
    return max(sum(weights[a:b]) for a, b in itertools.pairwise(bounds))


@settings(max_examples=80)
@given(WEIGHTS, st.integers(1, 9))
def test_no_contiguous_parts_have_a_lighter_heaviest_one(weights, ranks):
    partition = Partition.balanced(weights, ranks)
    assert partition.ranks == ranks and partition.items == len(weights)
    n, used = len(weights), min(ranks, len(weights) + 1)
    cuts = itertools.combinations_with_replacement(range(n + 1), used - 1)
    least = min(heaviest(weights, (0, *c, n)) for c in cuts)
    assert heaviest(weights, partition.bounds) <= least * (1 + 1e-12)
    assert Partition.balanced([weight / 2**40 for weight in weights], ranks) == partition
    if n >= ranks:
        assert all(partition.part(rank) for rank in range(ranks))


@given(st.integers(0, 12).flatmap(partitions))
def test_owners_and_parts_say_the_same(partition):
    for rank in range(partition.ranks):
        assert list(partition.part(rank)) == np.flatnonzero(partition.owners == rank).tolist()
    assert Partition(list(partition.bounds)) == Partition(np.array(partition.bounds)) == partition


REFUSED = [
    (lambda: Partition(()), "()", "integers"),
    (lambda: Partition((1, 3)), "1", "begin with 0"),
    (lambda: Partition((0, 3, 2)), "(0, 3, 2)", "decrease"),
    (lambda: Partition((0, 1.5)), "float64", "integers"),
    (lambda: Partition(("0", "1")), "<U1", "numbers"),
    (lambda: Partition(np.ma.masked_array([0, 1], [0, 1])), "masked array", "partition"),
    (lambda: Partition(((0, 1), (1, 2))), "partition", "bounds"),
    (lambda: Partition(None), "partition", "bounds"),
    (lambda: Partition.balanced([1, np.inf], 1), "inf", "finite"),
    (lambda: Partition.balanced([1, -2.0], 1), "-2.0", "at least 0"),
    (lambda: Partition((0, 2, 3)).check(4, 2, "layers"), "3 layers over 2", "4 over 2"),
]


@pytest.mark.parametrize("call, value, fix", REFUSED)
def test_refused_arguments(call, value, fix):
    assert_refused(call, PlanError, value, fix)


# ---- placement ----


@given(placements())
def test_the_parts_are_the_whole_schedule(placement):
    parts = [placement.steps_of(rank) for rank in range(placement.ranks)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(placement.schedule.table)))
    owners = placement.owners.tolist()
    assert owners == sorted(owners) or owners == sorted(owners, reverse=True)
    for step in placement.schedule.steps:
        assert step.worker == owners[step.end - 1]


@given(placements())
def test_a_segment_goes_to_a_rank_once_and_to_no_rank_that_does_not_need_it(placement):
    owners, messages = placement.owners.tolist(), placement.messages()
    assert len({(m.segment, m.target) for m in messages}) == len(messages)
    assert messages == sorted(messages)
    needed = {(step.left, step.worker) for step in placement.schedule.steps}
    needed |= {((0, k), owners[k]) for k in range(1, placement.schedule.n + 1)}
    for m in messages:
        assert m.source == owners[m.segment[1] - 1] != m.target
        assert (m.segment, m.target) in needed


@given(st.integers(0, 20), st.integers(1, 9))
def test_the_serial_scan_sends_a_vector_over_each_border(n, ranks):
    placement = place(linear(n), equal_parts(n, ranks).owners, ranks)
    assert len(placement.sent) == max(min(n, ranks) - 1, 0)
    assert not placement.sent[:, 1].any()


def test_ranks_without_elements_take_no_part():
    for schedule in every_hybrid(5):
        placement = place(schedule, equal_parts(5, 8).owners, 8)
        assert placement.ranks == 8 and sum(len(placement.steps_of(r)) == 0 for r in range(8)) >= 3
