"""Partitions are as even as they can be."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_cases import partitions
from refusals import assert_refused

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan import Partition

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
def test_parts_follow_each_other(partition):
    parts = [partition.part(rank) for rank in range(partition.ranks)]
    assert [item for part in parts for item in part] == list(range(partition.items))
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
