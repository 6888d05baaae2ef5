"""The file of a planned product: a round trip is the identity, and whatever is broken is named."""

import json

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import edited
from product_cases import STRUCTURES, factors_of, values_of
from seals import without_seal
from symbolic_oracle import random_pattern

import bppsa_cupy as bp


def assert_equal_products(one, other):
    """All that is planned is the same, map by map."""
    assert one.factors == other.factors and one.pattern == other.pattern
    assert len(one.multiplications) == len(other.multiplications)
    for first, second in zip(one.multiplications, other.multiplications, strict=True):
        assert (first.left, first.right) == (second.left, second.right)
        for a, b in ((first.many, second.many), (first.one, second.one)):
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


def test_single_bit_flips_are_all_caught(saved, tmp_path):
    content, damaged = saved.read_bytes(), tmp_path / "damaged.h5"
    for position in np.random.default_rng(0).integers(0, 8 * len(content), 100):
        flipped = bytearray(content)
        flipped[position // 8] ^= 1 << (position % 8)
        damaged.write_bytes(flipped)
        with pytest.raises(bp.PlanError, match=r"damaged\.h5"):
            bp.PlannedProduct.load(damaged)


def test_other_files_are_refused(saved, tmp_path):
    with pytest.raises(bp.PlanError, match="does not exist"):
        bp.PlannedProduct.load(tmp_path / "missing.h5")
    with pytest.raises(bp.PlanError, match="holds 'bppsa-product': a plan is 'bppsa-plan'"):
        bp.Plan.load(saved)
    bare = tmp_path / "bare.h5"
    bare.write_bytes(saved.read_bytes())
    without_seal(bare)
    with pytest.raises(bp.PlanError, match="without a seal"):
        bp.PlannedProduct.load(bare)


def with_attribute(name, change):
    def edit(file):
        value = file.attrs[name]
        file.attrs[name] = json.dumps(change(json.loads(value))) if isinstance(value, str) else change(value)

    return edit


def without_product(file):
    del file["products"][next(iter(file["products"]))]


def with_another_pattern(file):
    group = file["one_sample"][next(iter(file["one_sample"]))]
    group.attrs["pattern"] = file["factors/2"].attrs["pattern"]


def with_a_position_outside(file):
    group = file["one_sample"][next(iter(file["one_sample"]))]
    group["a_position"][0] = 10**6


def with_factor(name, value):
    def edit(file):
        file["factors/2"].attrs[name] = value

    return edit


def with_an_order_twice(file):
    file["factors/2/order"][0] = 0


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda file: file.attrs.modify("format", "x"), "holds 'x': a planned product is 'bppsa-product'"),
        (with_attribute("format_version", lambda v: 1), "a planned product of version 1, .* plan it again"),
        (
            with_attribute("multiplications", lambda v: v[:1]),
            "1 multiplications of 3 factors do not give one",
        ),
        (with_attribute("multiplications", lambda v: []), "0 multiplications of 3 factors"),
        (
            with_attribute("multiplications", lambda v: [[1, 2], [2, 3]]),
            r"\[2, 3\] are no two of the operands",
        ),
        (with_attribute("multiplications", lambda v: [[1, 1]]), r"\[1, 1\] are no two"),
        (with_attribute("multiplications", lambda v: [3]), "3 are no two of the operands"),
        (with_attribute("multiplications", lambda v: [[[], 1]]), r"\[\[\], 1\] are no two"),
        (with_attribute("multiplications", lambda v: [[2, 1]]), "product .* is missing"),
        (with_factor("pattern", "ab"), "/factors/2: pattern ab is missing"),
        (with_factor("pattern", 3), "/factors/2"),
        (with_factor("values_shape", "[3, 5]"), r"/factors/2: values of shape \(3, 5\)"),
        (with_factor("values_shape", "[-12, -1]"), "/factors/2: values of shape"),
        (with_factor("values_shape", "[12.0]"), "/factors/2: values of shape"),
        (with_an_order_twice, "/factors/2: order is no permutation"),
        (lambda file: file.move("factors/2", "factors/3"), "/factors holds"),
        (lambda file: file.pop("factors"), "/factors is missing"),
        (without_product, "product .* is missing"),
        (with_another_pattern, "product .*: "),
        (with_a_position_outside, "a_position holds positions outside"),
    ],
)
def test_broken_contents_are_named(saved, tmp_path, edit, words):
    path = edited(saved, tmp_path / "broken.h5", edit)
    with pytest.raises(bp.PlanError, match=words):
        bp.PlannedProduct.load(path)
