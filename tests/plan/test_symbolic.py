"""The symbolic product: SciPy's pattern on all-ones matrices, exact maps, the right kind."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from symbolic_oracle import evaluate, full_rows, random_pattern, random_selection, reference_pattern

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError, ShapeError
from bppsa_cupy.geometry import Conv2dGeometry
from bppsa_cupy.jacobians.conv2d import Conv2dJacobian
from bppsa_cupy.plan.product import check_against_new, symbolic
from bppsa_cupy.plan.product.symbolic import MAPS, map_bytes, multiply

FACTORS = {
    "general": lambda g, r, c: random_pattern(g, r, c, 0.3),
    "long rows": lambda g, r, c: random_pattern(g, r, c, 0.9),
    "selection": random_selection,
    "full rows": full_rows,
    "dense": lambda g, r, c: Pattern.dense(r, c),
    "empty": lambda g, r, c: random_pattern(g, r, c, 0.0),
}


def check(product, seed=0):
    """The product against SciPy: pattern, values, count, and what is promised of the maps."""
    a, b, generator = product.a, product.b, np.random.default_rng(seed)
    assert product.pattern == reference_pattern(a, b)
    x, y = generator.standard_normal(a.nnz), generator.standard_normal(b.nnz)
    expected = (a.to_scipy(x) @ b.to_scipy(y)).toarray()
    actual = product.pattern.to_scipy(evaluate(product, x, y)).toarray()
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)
    assert product.multiply_adds == (a.to_scipy() @ b.to_scipy()).sum()
    assert tuple(product.maps) == MAPS[product.kind]
    assert len({array.dtype for array in product.maps.values()}) <= 1
    sizes = product.pattern.nnz, product.multiply_adds
    assert product.map_bytes == map_bytes(a, b, product.kind, *sizes)
    assert not any(array.flags.writeable for array in product.maps.values())


@settings(max_examples=150)
@given(
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 9),
    st.sampled_from(list(FACTORS)),
    st.sampled_from(list(FACTORS)),
    st.integers(0, 2**32 - 1),
)
def test_products_of_every_structure(rows, inner, columns, first, second, seed):
    generator = np.random.default_rng(seed)
    check(multiply(FACTORS[first](generator, rows, inner), FACTORS[second](generator, inner, columns)))


@pytest.mark.parametrize("kind", ["terms", "row_wise"])
@pytest.mark.parametrize("columns", [2, 63, 64, 65, 200, 4100])
def test_both_general_kinds_at_the_edges_of_the_bit_sets(kind, columns, monkeypatch):
    monkeypatch.setattr(symbolic, "TERMS_PER_ENTRY", 0 if kind == "row_wise" else 10**6)
    generator = np.random.default_rng(columns)
    a = random_pattern(generator, 30, 20, 0.4)
    b = random_pattern(generator, 20, columns, 0.1)
    product = multiply(a, b)
    assert product.kind == kind
    check(product)


@pytest.mark.long
def test_maps_of_64_bits(monkeypatch):
    monkeypatch.setattr(symbolic, "TERMS_PER_ENTRY", 10**6)
    monkeypatch.setattr(symbolic, "index_dtype", lambda largest: np.int64)
    generator = np.random.default_rng(1)
    product = multiply(random_pattern(generator, 9, 8, 0.5), random_pattern(generator, 8, 7, 0.5))
    assert {array.dtype for array in product.maps.values()} == {np.dtype(np.int64)}
    check(product)


DIAGONAL, DENSE = Pattern.diagonal(4), Pattern.dense(4, 4)
# . 1 . .      1 1 1 1
# . . . .      . . . .
# . 1 . .      1 1 1 1
# . . . 1      1 1 1 1
SELECTION = Pattern((4, 4), np.array([0, 1, 1, 2, 3]), np.array([1, 1, 3]))
FULL = Pattern((4, 4), np.array([0, 4, 4, 8, 12]), np.tile(np.arange(4), 3))
BAND = Pattern((4, 4), np.array([0, 2, 5, 8, 10]), np.array([0, 1, 0, 1, 2, 1, 2, 3, 2, 3]))


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        (DIAGONAL, BAND, "scale_rows"),
        (BAND, DIAGONAL, "scale_columns"),
        (DIAGONAL, DIAGONAL, "scale_rows"),
        (SELECTION, BAND, "select_rows"),
        (SELECTION, DENSE, "select_rows"),
        (DENSE, DENSE, "dense"),
        (BAND, FULL, "full_rows"),
        (BAND, DENSE, "full_rows"),
        (BAND, SELECTION, "terms"),
        (BAND, BAND, "row_wise"),
    ],
)
def test_kinds(a, b, kind):
    product = multiply(a, b)
    assert product.kind == kind
    check(product)


def test_long_rows_are_row_wise():
    generator = np.random.default_rng(0)
    product = multiply(random_pattern(generator, 20, 30, 0.4), random_pattern(generator, 30, 40, 0.6))
    assert product.kind == "row_wise"
    check(product)


def test_too_many_terms_are_row_wise(monkeypatch):
    monkeypatch.setattr(symbolic, "TERMS_PER_ENTRY", 10**6)
    assert multiply(BAND, BAND).kind == "terms"
    monkeypatch.setattr(symbolic, "MAXIMAL_TERMS", 25)
    assert multiply(BAND, BAND).multiply_adds == 26
    assert multiply(BAND, BAND).kind == "row_wise"
    check(multiply(BAND, BAND))


def shifted_rows(generator, rows, columns):
    """Rows that are few different ones, each shifted by its own number of columns; empty ones among them."""
    dense = np.zeros((rows, columns), bool)
    motifs = generator.random((3, columns // 2)) < 0.4
    for row in dense:
        start = generator.integers(0, columns - columns // 2 + 1)
        row[start : start + columns // 2] = motifs[generator.integers(0, 3)] & (generator.random() < 0.8)
    return Pattern.from_scipy(scipy.sparse.csr_array(dense))


@pytest.mark.parametrize("by_words", [False, True])
@pytest.mark.parametrize("colliding", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_rows_that_differ_by_a_shift(seed, by_words, colliding, monkeypatch):
    # Keys that are all equal must cost time alone: rows are compared, not their keys.
    if colliding:
        monkeypatch.setattr(symbolic, "_first_of_key", lambda keys: np.zeros(keys.size, np.int64))
    monkeypatch.setattr(symbolic, "BITS_BYTES", 2**28 if by_words else 0)
    generator = np.random.default_rng(seed)
    a, b = shifted_rows(generator, 40, 30), shifted_rows(generator, 30, 70)
    check(multiply(a, b))


def test_a_convolution_has_few_different_rows():
    geometry = Conv2dGeometry(2, (9, 8), 3, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1)
    patterns = [Conv2dJacobian(geometry).pattern, Pattern.diagonal(3 * 72)]
    other = Conv2dGeometry(3, (9, 8), 2, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1)
    patterns.append(Conv2dJacobian(other).pattern)
    a, b = multiply(patterns[0], patterns[1]).pattern, patterns[2]
    like, _ = symbolic._like_rows(a.indptr, a.indices, b.indptr, b.indices)
    assert np.unique(like).size == 25  # corners, edges and inside, two pixels deep; channels do not differ
    check(multiply(a, b))


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_the_pattern_is_associative(seed):
    generator = np.random.default_rng(seed)
    a, b, c = (random_pattern(generator, *s, 0.25) for s in ((6, 7), (7, 5), (5, 8)))
    assert multiply(multiply(a, b).pattern, c).pattern == multiply(a, multiply(b, c).pattern).pattern


def test_numerical_cancellation_is_kept():
    # SciPy's product of values 1 and -1 would drop the entry; the pattern is guaranteed structure.
    a, b = Pattern.dense(1, 2), Pattern((2, 2), np.array([0, 1, 2]), np.array([0, 0]))
    assert multiply(a, b).pattern == Pattern((1, 2), np.array([0, 1]), np.array([0]))


def test_inner_sizes_must_agree():
    with pytest.raises(ShapeError, match=r"\(4, 4\) times B \(5, 5\)"):
        multiply(BAND, Pattern.diagonal(5))


def test_a_product_is_held_to_one_that_is_made_anew(monkeypatch):
    monkeypatch.setattr(symbolic, "TERMS_PER_ENTRY", 10**6)
    generator = np.random.default_rng(3)
    product = multiply(random_pattern(generator, 4, 5, 0.6), random_pattern(generator, 5, 3, 0.6))
    assert product.kind == "terms"
    check_against_new(product)
    for name, array in product.maps.items():
        other = replace(product, maps={**product.maps, name: array[::-1]})
        with pytest.raises(PlanError, match=f"{name} is not the map of its factors"):
            check_against_new(other)
    with pytest.raises(PlanError, match="its pattern is not that of its factors' product"):
        check_against_new(replace(product, pattern=Pattern.diagonal(4)))
