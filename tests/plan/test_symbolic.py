"""The symbolic product: SciPy's pattern on all-ones matrices, exact maps, the right kind."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from symbolic_oracle import evaluate, full_rows, random_pattern, random_selection, reference_pattern

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import PlanError, ShapeError
from bppsa_cupy.plan import product as symbolic
from bppsa_cupy.plan.product import MAPS, multiply
from bppsa_cupy.tools.plans.commands import check_product_anew

FACTORS = {
    "general": lambda g, r, c: random_pattern(g, r, c, 0.3),
    "long rows": lambda g, r, c: random_pattern(g, r, c, 0.9),
    "selection": random_selection,
    "full rows": full_rows,
    "dense": lambda g, r, c: Pattern.dense(r, c),
    "empty": lambda g, r, c: random_pattern(g, r, c, 0.0),
    "diagonal": lambda g, r, c: Pattern.diagonal(r),
}
KINDS = list(FACTORS)


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
    assert not any(array.flags.writeable for array in product.maps.values())


@settings(max_examples=150)
@given(
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 9),
    st.sampled_from(KINDS[:-1]),
    st.sampled_from(KINDS[:-1]),
    st.integers(0, 2**32 - 1),
)
def test_products_of_every_structure(rows, inner, columns, first, second, seed):
    generator = np.random.default_rng(seed)
    check(multiply(FACTORS[first](generator, rows, inner), FACTORS[second](generator, inner, columns)))


@pytest.mark.parametrize("kind", ["terms", "row_wise"])
@pytest.mark.parametrize("columns", [2, 63, 64, 65, 200, 4100])
@pytest.mark.parametrize("by_words", [False, True])
def test_both_general_kinds_at_the_edges_of_the_bit_sets(kind, columns, by_words, monkeypatch):
    monkeypatch.setattr(symbolic, "BITS_BYTES", 2**28 if by_words else 0)
    monkeypatch.setattr(symbolic, "TERMS_PER_ENTRY", 0 if kind == "row_wise" else 10**6)
    generator = np.random.default_rng(columns)
    a = random_pattern(generator, 30, 20, 0.4)
    b = random_pattern(generator, 20, columns, 0.1)
    product = multiply(a, b)
    assert product.kind == kind
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


def test_inner_sizes_must_agree():
    with pytest.raises(ShapeError, match=r"\(4, 4\) and B has shape \(5, 5\)"):
        multiply(BAND, Pattern.diagonal(5))


def test_a_product_is_held_to_one_that_is_made_anew(monkeypatch):
    monkeypatch.setattr(symbolic, "TERMS_PER_ENTRY", 10**6)
    generator = np.random.default_rng(3)
    product = multiply(random_pattern(generator, 4, 5, 0.6), random_pattern(generator, 5, 3, 0.6))
    assert product.kind == "terms"
    check_product_anew(product)
    for name, array in product.maps.items():
        other = replace(product, maps={**product.maps, name: array[::-1]})
        with pytest.raises(PlanError, match=f"the stored array {name} is wrong"):
            check_product_anew(other)
    with pytest.raises(PlanError, match="the stored pattern or number of multiply-adds is wrong"):
        check_product_anew(replace(product, pattern=Pattern.diagonal(4)))
