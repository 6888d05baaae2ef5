"""The file of a planned product: a round trip is the identity, and whatever is broken is named."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import edited
from product_cases import STRUCTURES, factors_of, values_of
from refusals import assert_refused
from symbolic_oracle import random_pattern

import bppsa_cupy as bp


def assert_equal_products(actual, expected):
    """All that is planned is the same, map by map."""
    assert actual.factors == expected.factors and actual.pattern == expected.pattern
    assert len(actual.multiplications) == len(expected.multiplications)
    for first, second in zip(actual.multiplications, expected.multiplications, strict=True):
        assert (first.left, first.right) == (second.left, second.right)
        for a, b in ((first.many, second.many), (first.single, second.single)):
            assert (a.kind, a.multiply_adds, a.a, a.b, a.pattern) == (
                b.kind,
                b.multiply_adds,
                b.a,
                b.b,
                b.pattern,
            )
            assert a.maps.keys() == b.maps.keys()
            assert all(np.array_equal(a.maps[name], b.maps[name]) for name in a.maps)


@settings(max_examples=20)
@given(
    st.lists(st.sampled_from(list(STRUCTURES)), min_size=2, max_size=4),
    st.integers(0, 9),
    st.integers(0, 2**32 - 1),
)
def test_round_trip(tmp_path_factory, structures, size, seed):
    path = tmp_path_factory.mktemp("product") / "p.h5"
    rng = np.random.default_rng(seed)
    patterns = factors_of(rng, structures, size)
    product = bp.plan_product(*patterns)
    product.save(path)
    loaded = bp.PlannedProduct.load(path)
    assert_equal_products(product, loaded)
    values = values_of(rng, patterns, 3)
    np.testing.assert_array_equal(product(*values), loaded(*values))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A·A·D, whose two multiplications are of different kinds; D has reversed values."""
    path = tmp_path_factory.mktemp("product") / "p.h5"
    a = random_pattern(np.random.default_rng(0), 12, 12, 0.4)
    down = np.arange(12)[::-1]
    bp.plan_product(a, a, scipy.sparse.coo_array((np.ones(12), (down, down)))).save(path)
    return path


def attribute(name, value, place="/"):
    return lambda file: file[place].attrs.__setitem__(name, value)


BROKEN = [
    (attribute("format", "x"), "'x'", "'bppsa-product'"),
    (attribute("format_version", 1), "version 1", "version 3"),
    (attribute("out_format", "bsr"), "result", "'bsr'"),
    (attribute("pattern", "ab"), "result", "pattern"),
    (attribute("pattern", "ab", "factors/2"), "/factors/2", "ab"),
    (lambda file: file["products"].pop(next(iter(file["products"]))), "product", "lacks"),
]


@pytest.mark.parametrize("edit, value, fix", BROKEN)
def test_broken_contents_are_named(saved, tmp_path, edit, value, fix):
    path = edited(saved, tmp_path / "broken.h5", edit)
    assert_refused(lambda: bp.PlannedProduct.load(path), bp.PlanError, value, fix, "broken.h5")
