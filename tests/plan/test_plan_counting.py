"""Counts before multiplying are those of the products that are made."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import convolution, pooling, random_chain, small_network
from symbolic_oracle import random_pattern

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.plan import Chain, Element
from bppsa_cupy.plan.algorithms import blelloch, hybrid, linear
from bppsa_cupy.plan.product.symbolic import multiply
from bppsa_cupy.plan.schedule import Step
from bppsa_cupy.plan.sizes import ChainSizes, count
from bppsa_cupy.plan.sizes import sweep as count_products
from bppsa_cupy.plan.sizes.pattern_sizes import PatternSizes


@settings(max_examples=60)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 150), st.integers(0, 2**32 - 1))
def test_count_of_one_product(rows, inner, columns, seed):
    generator = np.random.default_rng(seed)
    a, b = random_pattern(generator, rows, inner, 0.4), random_pattern(generator, inner, columns, 0.3)
    product = multiply(a, b)
    assert count(a, b) == (product.pattern.nnz, product.multiply_adds)


def every_pattern(chain):
    """The pattern of every segment, by SciPy."""
    n = len(chain)
    patterns = {(k, k + 1): element.pattern for k, element in enumerate(chain.elements, 1)}
    for length in range(2, n + 1):
        for begin in range(1, n + 2 - length):
            end = begin + length
            product = patterns[end - 1, end].to_scipy() @ patterns[begin, end - 1].to_scipy()
            patterns[begin, end] = Pattern.from_scipy(product)
    return patterns


def assert_counts(counts, pattern):
    expected = PatternSizes.of(pattern)
    assert counts.shape == pattern.shape and counts.nnz == pattern.nnz
    np.testing.assert_array_equal(counts.row_lengths, expected.row_lengths)
    np.testing.assert_array_equal(counts.column_counts, expected.column_counts)
    assert counts.is_selection == pattern.is_selection
    assert counts.is_dense == pattern.is_dense


def counted_all(chain):
    """Every segment [begin, end), 1 <= begin < end <= n + 1, counted."""
    return ChainSizes(chain, np.stack(np.triu_indices(len(chain) + 1, 1), 1) + 1)


def chain_of(*patterns):
    return Chain(tuple(Element(f"{k}", pattern, True) for k, pattern in enumerate(patterns)))


def unpruned():
    """Dense channels and overlapping windows: most rows and columns are equal to others."""
    return chain_of(
        Pattern.dense(8, 3),
        pooling(2, 4),
        Pattern.diagonal(32),
        convolution(3, 6, 2, 3),
        Pattern.diagonal(108),
        convolution(2, 8, 3, 3),
    )


CHAINS = {
    "network": small_network(),
    "unpruned": unpruned(),
    "random": random_chain(7, 3),
    "wide": random_chain(9, 5, 90),
    "wider": random_chain(5, 1, 300),
    "diagonals": chain_of(*[Pattern.diagonal(4)] * 3),
    "empty rows": chain_of(
        Pattern((3, 0), [0] * 4, []), Pattern((0, 3), [0], []), Pattern((2, 0), [0] * 3, [])
    ),
}


@pytest.mark.parametrize("block", [8, 200, 2**27])
@pytest.mark.parametrize("name", CHAINS)
def test_all_segments_in_blocks_of_any_width(name, block, monkeypatch):
    monkeypatch.setattr(count_products, "BLOCK_BYTES", block)
    patterns = every_pattern(CHAINS[name])
    counts = counted_all(CHAINS[name])
    numbers, _ = counts.counting.everything()
    for segment, pattern in patterns.items():
        assert numbers[segment] >= 0
        assert_counts(counts.counting.pattern(segment), pattern)


def test_columns_in_blocks_of_one_word(monkeypatch):
    monkeypatch.setattr(count_products, "BLOCK_BYTES", 8)
    assert_columns_are_counted(130)


@pytest.mark.parametrize("columns", [63, 64, 65, 128, 129, 130])
def test_as_many_columns_as_words_hold_and_one_more(columns):
    assert_columns_are_counted(columns)


def assert_columns_are_counted(columns):
    """Of columns that are all different."""
    generator = np.random.default_rng(columns)
    first, second = random_pattern(generator, 40, columns, 0.5), random_pattern(generator, 9, 40, 0.1)
    assert len(set(map(bytes, first.to_scipy().toarray().T))) == columns
    counts = counted_all(chain_of(first, second))
    assert_counts(counts.counting.pattern((1, 3)), Pattern.from_scipy(second.to_scipy() @ first.to_scipy()))


@settings(max_examples=40)
@given(st.lists(st.integers(0, 3), max_size=14), st.integers(0, 2**32 - 1))
def test_repeated_elements(letters, seed):
    """Words of four letters: a diagonal and three square matrices."""
    generator = np.random.default_rng(seed)
    alphabet = [
        Pattern.diagonal(5),
        *(random_pattern(generator, 5, 5, density) for density in (0.1, 0.3, 0.6)),
    ]
    chain = chain_of(*(alphabet[letter] for letter in letters))
    counts = counted_all(chain)
    for segment, pattern in every_pattern(chain).items():
        assert_counts(counts.counting.pattern(segment), pattern)


@pytest.mark.parametrize("name", CHAINS)
def test_segments_that_were_not_counted_are_when_asked_for(name):
    chain = CHAINS[name]
    counts, patterns = ChainSizes(chain), every_pattern(chain)
    last = len(chain) + 1
    assert counts.counting.everything()[0][1, last] == -1
    for segment in [(1, last), (2, 3), (2, last)]:
        assert_counts(counts.counting.pattern(segment), patterns[segment])
        assert counts.counting.everything()[0][segment] >= 0


@pytest.mark.parametrize("name", CHAINS)
def test_numbers_are_the_counts_of_every_segment(name):
    chain = CHAINS[name]
    for counts, least in (
        (counted_all(chain), len(chain) + 1),
        (ChainSizes(chain, [(k, k + 1) for k in range(1, len(chain) + 1)]), 1),
    ):
        numbers, distinct = counts.counting.everything()
        for begin in range(len(chain) + 2):
            for end in range(len(chain) + 2):
                if not 0 < begin < end:
                    assert numbers[begin, end] == -1
                elif end - begin <= least:
                    assert numbers[begin, end] >= 0
                if numbers[begin, end] >= 0:
                    assert distinct[numbers[begin, end]] is counts.counting.pattern((begin, end))


def test_structure_decides_the_kind_as_the_patterns_do():
    chain = small_network()
    counts, patterns = (
        ChainSizes(chain, np.vstack([blelloch(6).out, hybrid(6, 1).out])),
        every_pattern(chain),
    )
    for step in blelloch(6).steps:
        if step.kind == "mm":
            product = multiply(patterns[step.right], patterns[step.left])
            assert counts.kind(step) == product.kind
            assert counts.multiply_adds(step) == product.multiply_adds
            assert counts.map_bytes(step) == product.map_bytes


def test_equal_segments_are_counted_once():
    counts = ChainSizes(chain_of(*[small_network().elements[2].pattern] * 8), blelloch(8).out)
    assert counts.counting.pattern((1, 2)) is counts.counting.pattern((2, 3))
    assert counts.counting.pattern((2, 4)) is counts.counting.pattern((4, 6))
    chain = unpruned()
    counts = counted_all(chain)
    assert counts.counting.pattern((2, 3)) is counts.counting.pattern((2, 4)), "a diagonal changes no pattern"


def test_a_thousand_equal_elements_are_few_products():
    generator = np.random.default_rng(0)
    pattern = random_pattern(generator, 20, 20, 0.2)
    chain = chain_of(random_pattern(generator, 20, 7, 0.3), *[pattern] * 1000)
    counts = counted_all(chain)
    numbers, distinct = counts.counting.everything()
    assert numbers.shape == (1003, 1003) and numbers[1:, 1:][np.triu_indices(1001, 1)].min() >= 0
    assert len(distinct) < 40, "powers that have filled in are one"
    assert counts.nnz((2, 1002)) == 400 and counts.multiply_adds(Step(0, 2, 500, 1002, "mm")) == 8000


def test_vectors_multiply_every_entry_once():
    chain = small_network()
    counts = ChainSizes(chain, linear(6).out)
    nnz = [counts.multiply_adds(step) for step in linear(6).steps]
    assert nnz == [element.pattern.nnz for element in chain.elements[:5]]


def test_inner_sizes_must_agree():
    with pytest.raises(ShapeError, match="columns must be B's rows"):
        count(Pattern.dense(2, 3), Pattern.dense(2, 3))
