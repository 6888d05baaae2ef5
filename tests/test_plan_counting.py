"""Counts before multiplying are those of the products that are made."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import random_chain, small_network
from symbolic_oracle import random_pattern

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.plan import counting
from bppsa_cupy.plan.counting import ChainCounts, Counts, count, count_segments
from bppsa_cupy.plan.schedule import blelloch, hybrid, linear
from bppsa_cupy.plan.symbolic import multiply


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 150), st.integers(0, 2**32 - 1))
def test_count_of_one_product(rows, inner, columns, seed):
    generator = np.random.default_rng(seed)
    a, b = random_pattern(generator, rows, inner, 0.4), random_pattern(generator, inner, columns, 0.3)
    product = multiply(a, b)
    assert count(a, b) == (product.pattern.nnz, product.multiply_adds)


def every_pattern(chain):
    n = len(chain)
    patterns = {(k, k + 1): element.pattern for k, element in enumerate(chain.elements, 1)}
    for length in range(2, n + 1):
        for begin in range(1, n + 2 - length):
            end = begin + length
            right, left = patterns[end - 1, end], patterns[begin, end - 1]
            patterns[begin, end] = multiply(right, left).pattern
    return patterns


@pytest.mark.parametrize("block", [8, 200, 2**27])
@pytest.mark.parametrize("chain", [small_network(), random_chain(7, 3), random_chain(9, 5, 90)])
def test_all_segments_in_blocks_of_any_width(chain, block, monkeypatch):
    monkeypatch.setattr(counting, "BLOCK_BYTES", block)
    patterns = every_pattern(chain)
    counts = count_segments(chain, patterns)
    for segment, pattern in patterns.items():
        expected = Counts.of(pattern)
        assert counts[segment].shape == pattern.shape
        np.testing.assert_array_equal(counts[segment].row_lengths, expected.row_lengths)
        np.testing.assert_array_equal(counts[segment].column_counts, expected.column_counts)
        assert counts[segment].nnz == pattern.nnz
        assert counts[segment].is_selection == pattern.is_selection
        assert counts[segment].is_dense == pattern.is_dense


def test_structure_decides_the_kind_as_the_patterns_do():
    chain = small_network()
    counts, patterns = ChainCounts.of(chain, [blelloch(6), hybrid(6, 1)]), every_pattern(chain)
    for step in blelloch(6).steps:
        if step.kind == "mm":
            product = multiply(patterns[step.right], patterns[step.left])
            assert counts.kind(step) == product.kind
            assert counts.multiply_adds(step) == product.multiply_adds
            assert counts.map_bytes(step) == product.map_bytes


def test_equal_elements_are_counted_once():
    element = small_network().elements[2]
    chain = type(small_network())((element,) * 8)
    counts = ChainCounts.of(chain, [blelloch(8)])
    assert counts.counts[1, 2] is counts.counts[2, 3]
    assert counts.counts[2, 4] is counts.counts[4, 6]


def test_vectors_multiply_every_entry_once():
    chain = small_network()
    counts = ChainCounts.of(chain, [linear(6)])
    nnz = [counts.multiply_adds(step) for step in linear(6).steps]
    assert nnz == [element.pattern.nnz for element in chain.elements[:5]]


def test_inner_sizes_must_agree():
    with pytest.raises(ShapeError, match="columns must be B's rows"):
        count(Pattern.dense(2, 3), Pattern.dense(2, 3))
