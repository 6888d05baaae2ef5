"""Compiled loops of counting and of checks of terms, against NumPy, one by one."""

import numpy as np
import pytest
from symbolic_oracle import random_pattern

from bppsa_cupy.plan.product import loops as product_loops
from bppsa_cupy.plan.product.symbolic import multiply, term_list
from bppsa_cupy.plan.sizes import loops


@pytest.mark.parametrize("chunks", [1, 2, 3, 7])
@pytest.mark.parametrize("heaviest", [1, 2, 9])
def test_columns_are_weighed(chunks, heaviest):
    generator = np.random.default_rng(heaviest)
    for rows, words in ((0, 1), (1, 1), (5, 2), (40, 3)):
        bits = generator.integers(0, 2**64, (rows, words), np.uint64)
        full = generator.random(rows) < 0.2
        bits[full] = 2**64 - 1
        weights = generator.integers(1, heaviest + 1, rows)
        counts = np.full(64 * words, -1, np.int64)
        digits = int(weights.sum()).bit_length() + 1
        loops.weigh_columns(bits, full, weights, digits, chunks, counts)
        columns = np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little")
        np.testing.assert_array_equal(counts, weights @ columns.astype(np.int64))


def test_rows_are_weighed():
    generator = np.random.default_rng(0)
    for rows, words, digits in ((0, 1, 1), (4, 1, 1), (9, 3, 5)):
        bits = generator.integers(0, 2**64, (rows, words), np.uint64)
        weights = generator.integers(0, 2**digits, 64 * words)
        planes = (weights >> np.arange(digits)[:, None] & 1).astype(np.uint8)
        lengths = np.full(rows, -1, np.int64)
        loops.weigh_rows(bits, np.packbits(planes, axis=1, bitorder="little").view(np.uint64), lengths)
        columns = np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little")
        np.testing.assert_array_equal(lengths, columns.astype(np.int64) @ weights)


@pytest.mark.parametrize("chunks", [1, 3])
def test_hashes_tell_sets_of_groups_apart(chunks):
    generator = np.random.default_rng(1)
    pattern = random_pattern(generator, 60, 8, 0.3)
    group = np.array([0, 0, 1, 2, 2, 3, 4, 4], np.int32)
    lengths, hashes = np.empty(60, np.int64), np.empty((60, 2), np.uint64)
    loops.hash_rows(pattern.indptr, pattern.indices, group, 5, chunks, lengths, hashes)
    rows = [frozenset(group[row]) for row in np.split(pattern.indices, pattern.indptr[1:-1])]
    assert lengths.tolist() == [len(row) for row in rows]
    for column in hashes.T.tolist():
        assert len(set(zip(rows, column, strict=True))) == len(set(rows)) == len(set(column))


def test_terms_that_are_none_of_their_entry():
    generator = np.random.default_rng(2)
    a, b = random_pattern(generator, 9, 7, 0.5), random_pattern(generator, 7, 8, 0.5)
    product = multiply(a, b)
    maps = term_list(a, b, product.pattern)
    arrays = a.indptr, a.indices, b.indptr, b.indices, product.pattern.indptr, product.pattern.indices
    assert product_loops.wrong_terms(*arrays, *maps.values()) == 0
    row_of, b_row_of = a.rows(), b.rows()
    for name, size in (("a_position", a.nnz), ("b_position", b.nnz)):
        for place in range(0, product.multiply_adds, 3):
            changed = {key: array.copy() for key, array in maps.items()}
            changed[name][place] = generator.integers(size)
            wrong = 0
            for k, row in enumerate(product.pattern.rows()):
                before = -1
                for t in range(changed["term_ptr"][k], changed["term_ptr"][k + 1]):
                    p, q = changed["a_position"][t], changed["b_position"][t]
                    own = row_of[p] == row and b_row_of[q] == a.indices[p] and p > before
                    if own and b.indices[q] == product.pattern.indices[k]:
                        before = p
                    else:
                        wrong += 1
            assert product_loops.wrong_terms(*arrays, *changed.values()) == wrong
