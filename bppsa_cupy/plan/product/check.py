"""Checks of a product that was read from a file, made before any kernel sees its maps."""

from __future__ import annotations

import numpy as np

from bppsa_cupy.errors import PlanError
from bppsa_cupy.plan.product.symbolic import (
    MAPS,
    Product,
    check_shapes,
    entry_terms,
    has_full_rows,
    masked_row_terms,
    multiply,
    multiply_masked,
    row_sums,
    selected_rows,
    wrong_terms,
)


def check_product(product: Product) -> None:
    """Raise PlanError where kind, sizes or maps do not fit the three patterns.

    Every index a kernel follows is in range afterwards, and a list of terms is the right one. Time grows with
    the maps, not with the work of making them; whether a pattern is that of the product is
    `check_against_new`'s question where no structure tells it.
    """
    a, b, c, maps = product.a, product.b, product.pattern, product.maps
    _require(product.kind in MAPS, f"kind {product.kind!r} is unknown")
    check_shapes(a, b)
    _require(c.shape == (a.shape[0], b.shape[1]), f"its shape is {c.shape}, not {(a.shape[0], b.shape[1])}")
    _require(tuple(maps) == MAPS[product.kind], f"maps of {product.kind} are {MAPS[product.kind]}")
    terms = entry_terms(a, b)
    row_terms = row_sums(a, terms) if product.kind != "masked" else masked_row_terms(a, b, c)
    total = int(row_terms.sum())
    _require(product.multiply_adds == total, f"it has {total} multiply-adds, not {product.multiply_adds}")
    _check_structure(product, terms, row_terms)
    for name, array in maps.items():
        _require(array.ndim == 1 and array.dtype in (np.int32, np.int64), f"{name} is no row of integers")
    if maps:
        pointer = maps["term_ptr"]
        _require(pointer.size == c.nnz + 1, f"term_ptr has {pointer.size} values, not {c.nnz + 1}")
        _require(pointer[0] == 0 and pointer[-1] == total, f"term_ptr does not run from 0 to {total}")
        least = np.diff(pointer).min(initial=1)
        _require(least > 0 or (least == 0 and product.kind == "masked"), "term_ptr does not increase")
        for name, end in (("a_position", a.nnz), ("b_position", b.nnz)):
            positions = maps[name]
            _require(positions.size == total, f"{name} has {positions.size} values, not {total}")
            inside = positions.min(initial=0) >= 0 and positions.max(initial=-1) < end
            _require(inside, f"{name} holds positions outside 0 to {end - 1}")
        wrong = wrong_terms(product)
        _require(not wrong, f"{wrong} of its {total} terms are not those of its factors")


def check_against_new(product: Product) -> None:
    """Make the product again, and raise PlanError where the pattern or a map differs."""
    a, b, masked = product.a, product.b, product.kind == "masked"
    new = multiply_masked(a, b, product.pattern) if masked else multiply(a, b)
    _require(new.pattern == product.pattern, "its pattern is not that of its factors' product")
    if new.kind == product.kind:
        for name, array in new.maps.items():
            _require(np.array_equal(array, product.maps[name]), f"{name} is not the map of its factors")


def _check_structure(product: Product, terms: np.ndarray, row_multiply_adds: np.ndarray) -> None:
    """The kinds without maps lean on the structure of their factors."""
    a, b, c, kind = product.a, product.b, product.pattern, product.kind
    met = row_multiply_adds > 0
    if kind == "scale_rows":
        fits = a.is_diagonal and c == b
    elif kind == "scale_columns":
        fits = b.is_diagonal and c == a
    elif kind == "select_rows":
        fits = a.is_selection and np.array_equal(c.row_lengths, row_multiply_adds)
        fits = fits and np.array_equal(c.indices, selected_rows(a, b, terms).indices)
    elif kind == "dense":
        fits = a.is_dense and b.is_dense and c.is_dense
    elif kind == "full_rows":
        fits = has_full_rows(b) and np.array_equal(c.row_lengths, met * b.shape[1])
    else:
        fits = kind == "masked" or bool(np.all((c.row_lengths > 0) == met))
    _require(fits, f"its patterns do not have the structure of kind {kind}")


def _require(condition: bool | np.bool_, message: str) -> None:
    if not condition:
        raise PlanError(message)
