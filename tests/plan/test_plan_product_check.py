"""Products that a file holds: what the check takes computes the product, and nothing else is taken."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from symbolic_oracle import evaluate, full_rows, random_pattern, random_selection

from bppsa_cupy.csr import Pattern
from bppsa_cupy.errors import BppsaError, PlanError
from bppsa_cupy.plan.product import multiply
from bppsa_cupy.plan.product.check import check_product
from bppsa_cupy.plan.product.symbolic import MAPS, term_list

FACTORS = {
    "any": lambda generator, rows, columns: random_pattern(generator, rows, columns, 0.5),
    "rows": full_rows,
    "selection": random_selection,
    "dense": lambda generator, rows, columns: Pattern.dense(rows, columns),
    "square": lambda generator, rows, columns: Pattern.diagonal(rows),
}


def computes_the_product(product, generator):
    """Whether the kind's definition, read literally, gives A·B."""
    a, b = (generator.standard_normal(pattern.nnz) for pattern in (product.a, product.b))
    c = product.pattern.to_scipy(evaluate(product, a, b)).toarray()
    return np.allclose(c, (product.a.to_scipy(a) @ product.b.to_scipy(b)).toarray())


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from(list(FACTORS)), st.sampled_from(list(FACTORS)))
def test_what_is_taken_computes_the_product(seed, first, second):
    """A product by its own kind, and by each other one, with the maps that this one has."""
    generator = np.random.default_rng(seed)
    rows, inner, columns = generator.integers(1, 5, 3)
    if first == "square":
        rows = inner
    if second == "square":
        columns = inner
    a, b = FACTORS[first](generator, rows, inner), FACTORS[second](generator, inner, columns)
    product = multiply(a, b)
    check_product(product)
    assert computes_the_product(product, generator)
    terms = term_list(a, b, product.pattern)
    for kind in MAPS:
        other = replace(product, kind=kind, maps=terms if kind == "terms" else {})
        try:
            check_product(other)
        except PlanError:
            continue
        assert computes_the_product(other, generator), kind


def general():
    """Of kind "terms"."""
    a = Pattern((2, 3), np.array([0, 2, 3]), np.array([0, 2, 1]))
    b = Pattern((3, 2), np.array([0, 1, 3, 4]), np.array([0, 0, 1, 1]))
    product = replace(multiply(a, b), kind="terms", maps={})
    return replace(product, maps=term_list(a, b, product.pattern))


def with_map(name, change):
    product = general()
    maps = {key: array.copy() for key, array in product.maps.items()}
    maps[name] = change(maps[name])
    return replace(product, maps=maps)


def put(position, value):
    def change(array):
        array[position] = value
        return array

    return change


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: replace(general(), kind="all"), "kind 'all' is unknown"),
        (lambda: replace(general(), b=Pattern.dense(2, 2)), r"A \(2, 3\) times B \(2, 2\)"),
        (lambda: replace(general(), pattern=Pattern.dense(2, 3)), r"its shape is \(2, 3\), not \(2, 2\)"),
        (lambda: replace(general(), pattern=Pattern.dense(3, 2)), r"its shape is \(3, 2\), not \(2, 2\)"),
        (lambda: replace(general(), maps={}), "maps of terms are .*term_ptr.*a_position.*b_position"),
        (lambda: replace(general(), kind="row_wise"), r"maps of row_wise are \(\)"),
        (lambda: replace(general(), multiply_adds=3), "it has 4 multiply-adds, not 3"),
        (lambda: with_map("a_position", lambda array: array[None]), "a_position is no row of integers"),
        (lambda: with_map("a_position", np.float64), "a_position is no row of integers"),
        (lambda: with_map("term_ptr", lambda array: array[:-1]), "term_ptr has 4 values, not 5"),
        (lambda: with_map("term_ptr", put(0, 1)), "term_ptr does not run from 0 to 4"),
        (lambda: with_map("term_ptr", put(-1, 5)), "term_ptr does not run from 0 to 4"),
        (lambda: with_map("term_ptr", put(1, 0)), "term_ptr does not increase"),
        (lambda: with_map("a_position", lambda array: array[:3]), "a_position has 3 values, not 4"),
        (lambda: with_map("b_position", put(0, 4)), "b_position holds positions outside 0 to 3"),
        (lambda: with_map("a_position", put(0, 3)), "a_position holds positions outside 0 to 2"),
        (lambda: with_map("a_position", put(0, -1)), "a_position holds positions outside 0 to 2"),
        (lambda: with_map("a_position", put(0, 1)), "1 of its 4 terms are not those of its factors"),
    ],
)
def test_what_does_not_fit_is_named(make, words):
    with pytest.raises(BppsaError, match=words):
        check_product(make())


def test_a_row_that_is_missing_is_seen():
    emptied = Pattern((2, 2), np.array([0, 2, 2]), np.array([0, 1]))
    product = replace(general(), kind="row_wise", maps={}, pattern=emptied)
    with pytest.raises(PlanError, match="do not have the structure of kind row_wise"):
        check_product(product)


def test_rows_that_are_not_full_are_seen():
    """Of B, whose product with a full row is full all the same."""
    product = multiply(Pattern.dense(1, 2), Pattern((2, 2), np.array([0, 1, 2]), np.array([1, 0])))
    assert product.pattern == Pattern.dense(1, 2)
    with pytest.raises(PlanError, match="do not have the structure of kind full_rows"):
        check_product(replace(product, kind="full_rows", maps={}))


def test_the_general_product_is_right():
    check_product(general())
    assert computes_the_product(general(), np.random.default_rng(0))


def test_a_list_of_no_terms():
    nothing = Pattern((2, 3), np.zeros(3, int), np.zeros(0, int))
    product = multiply(nothing, Pattern((3, 2), np.zeros(4, int), np.zeros(0, int)))
    check_product(replace(product, kind="terms", maps=term_list(product.a, product.b, product.pattern)))
