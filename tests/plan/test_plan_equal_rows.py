"""Rows and columns that are equal, against plain sets."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from symbolic_oracle import random_pattern

from bppsa_cupy.plan.sizes.equal_rows import EqualRows, RowClasses


def groups_of(keys):
    """A number for each key, by first members."""
    numbers = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


@given(st.integers(0, 12), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_a_partition_by_keys(size, count, seed):
    keys = np.random.default_rng(seed).integers(0, 3, (count, size))
    found = RowClasses.of(*keys)
    expected = groups_of(zip(*keys.tolist(), strict=True))
    assert found.group.tolist() == expected
    assert found.kept.tolist() == [expected.index(group) for group in range(max(expected, default=-1) + 1)]
    assert found.sizes.tolist() == [expected.count(group) for group in range(found.groups)]
    assert found.is_identity == (len(set(expected)) == size)


@settings(max_examples=60)
@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([0.2, 0.5, 0.9]), st.integers(0, 2**32 - 1))
def test_a_pattern_without_repetition(rows, columns, density, seed):
    generator = np.random.default_rng(seed)
    pattern = random_pattern(generator, rows, columns, density)
    dense = pattern.to_scipy().toarray() > 0
    equal_rows = EqualRows()
    of_columns = equal_rows.columns(pattern)
    assert of_columns.group.tolist() == groups_of(map(bytes, np.ascontiguousarray(dense.T)))
    assert equal_rows.columns(pattern) is of_columns
    grouped = equal_rows.of(pattern, of_columns)
    assert equal_rows.of(pattern, of_columns) is grouped
    assert grouped.rows.group.tolist() == groups_of(map(bytes, dense))
    for number, row in enumerate(grouped.rows.kept):
        found = grouped.indices[grouped.indptr[number] : grouped.indptr[number + 1]]
        assert sorted(found) == sorted(set(of_columns.group[dense[row]]))
    assert grouped.indptr.size == grouped.rows.groups + 1


def test_any_groups_of_columns_may_be_asked_for():
    """Rows that differ in columns of one group alone are equal."""
    pattern = random_pattern(np.random.default_rng(3), 12, 6, 0.4)
    columns = RowClasses.of(np.array([0, 0, 1, 1, 2, 2]))
    dense = pattern.to_scipy().toarray().reshape(12, 3, 2).any(2)
    grouped = EqualRows().of(pattern, columns)
    assert grouped.rows.group.tolist() == groups_of(map(bytes, dense))
    assert 1 < grouped.rows.groups < 12


def test_equal_partitions_are_one_object():
    generator, equal_rows = np.random.default_rng(0), EqualRows()
    one, other = (random_pattern(generator, 30, 40, 0.5) for _ in range(2))
    each = equal_rows.columns(one)
    assert each.is_identity and each is equal_rows.columns(other)
