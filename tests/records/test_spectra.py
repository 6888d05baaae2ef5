"""Singular values of steps, products over spans, gradients on their way back: by NumPy, and their laws."""

from fractions import Fraction

import numpy as np
import pytest
from chain_cases import network_records, records_of
from hypothesis import given, settings
from hypothesis import strategies as st

import bppsa_cupy as bp


def random(steps=6, batch=2, size=3, seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).standard_normal((steps, batch, size, size))


# ---- singular values ----


def test_singular_values_are_numpys():
    jacobians = random()
    values = bp.singular_values(records_of(jacobians))
    assert values.shape == (6, 2, 3) and values.dtype == np.float64
    for t in range(6):
        for b in range(2):
            squares = np.linalg.eigvalsh(jacobians[t, b] @ jacobians[t, b].T)[::-1]
            np.testing.assert_allclose(values[t, b] ** 2, squares, rtol=1e-10, atol=1e-13)


def test_singular_values_of_a_network(monkeypatch):
    _, records = network_records(bp.LSTM(3, 4), 9, 2, lengths=[4, 9])
    values = bp.singular_values(records)
    np.testing.assert_array_equal(values[4:, 0], 1)
    monkeypatch.setattr("bppsa_cupy.records.chain.BLOCK", 1)
    np.testing.assert_array_equal(bp.singular_values(records), values)
    np.testing.assert_allclose(values.prod(axis=2), np.abs(np.linalg.det(records.dense())), rtol=1e-10)


# ---- products over spans ----


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("block", [1, 1 << 21])
def test_a_span_is_the_product_of_its_steps(monkeypatch, direction, block):
    monkeypatch.setattr("bppsa_cupy.records.chain.BLOCK", block)
    jacobians = random()
    records = records_of(jacobians, direction=direction)
    walk = range(1, 5) if direction == "forward" else range(4, 0, -1)
    expected = np.tile(np.eye(3), (2, 1, 1))
    for t in walk:
        expected = jacobians[t] @ expected
    product = bp.span_product(records.where(steps=slice(1, 5)))
    assert product.steps == (1, 4)
    assert ((np.abs(product.matrix).max(axis=(1, 2)) >= 0.5) & (np.abs(product.matrix) <= 1).all()).all()
    np.testing.assert_allclose(product.dense(), expected.swapaxes(1, 2), rtol=1e-12, atol=1e-12)
    norms = np.linalg.norm(expected, 2, axis=(1, 2))
    np.testing.assert_allclose(product.log_norm, np.log(norms), rtol=1e-12)


def test_a_span_takes_the_gradient_of_its_end_to_its_start():
    net, records = network_records(bp.GRU(3, 4, outputs="last"), 7, 2)
    gradient = np.random.default_rng(1).standard_normal((2, 4))
    net.backward(gradient)
    actual = np.einsum("bij,bj->bi", bp.span_product(records).dense(), gradient)
    np.testing.assert_allclose(actual, net.last_pass.state_gradients[0][0], rtol=1e-12)


@settings(max_examples=20)
@given(seed=st.integers(0, 99), steps=st.integers(2, 8), cut=st.integers(1, 7), scale=st.floats(1e-9, 1e9))
def test_two_spans_make_one(seed, steps, cut, scale):
    cut = min(cut, steps - 1)
    records = records_of(random(steps, seed=seed, scale=scale))
    parts = [bp.span_product(records[:cut]), bp.span_product(records[cut:])]
    full = bp.span_product(records)
    joined = parts[0].matrix @ parts[1].matrix
    shift = full.exponent - parts[0].exponent - parts[1].exponent
    np.testing.assert_allclose(joined, np.ldexp(full.matrix, shift[:, None, None]), rtol=1e-9, atol=1e-12)


def test_a_product_beyond_the_range_says_so():
    jacobians = np.full((400, 2, 1, 1), 10.0)
    jacobians[:, 1] = 0.1
    product = bp.span_product(records_of(jacobians))
    np.testing.assert_allclose(product.log_norm, [400 * np.log(10), -400 * np.log(10)], rtol=1e-12)
    with pytest.raises(bp.NonFiniteError):
        product.dense()
    short = bp.span_product(records_of(jacobians[:50]))
    with pytest.raises(bp.NonFiniteError):
        short.dense(np.float32)
    np.testing.assert_allclose(short.dense()[:, 0, 0], [1e50, 1e-50], rtol=1e-12)
    exact = Fraction(float(product.matrix[0, 0, 0])) * Fraction(2) ** int(product.exponent[0])
    assert abs(exact / Fraction(10) ** 400 - 1) < Fraction(1, 10**12)


# ---- gradients ----


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_gradients_go_back_step_by_step(direction):
    jacobians, gradient = random(), np.random.default_rng(9).standard_normal((2, 3))
    records = records_of(jacobians, direction=direction)
    norms = bp.log_gradient_norms(records, gradient)
    largest = bp.log_gradient_norms(records)
    back = range(5, -1, -1) if direction == "forward" else range(6)
    products = np.tile(np.eye(3), (2, 1, 1))
    for t in back:
        np.testing.assert_allclose(np.exp(largest[t]), np.linalg.norm(products, 2, axis=(1, 2)), rtol=1e-12)
        here = np.einsum("bij,bi->bj", products, gradient)
        np.testing.assert_allclose(np.exp(norms[t]), np.linalg.norm(here, axis=1), rtol=1e-12)
        products = products @ jacobians[t]
    shared = bp.log_gradient_norms(records, gradient[0])
    np.testing.assert_array_equal(shared[:, 0], norms[:, 0])


def test_long_gradients_stay_in_range():
    records = records_of(np.tile(np.diag([7.0, 0.1]), (3000, 1, 1, 1)))
    steps_back = np.arange(2999, -1, -1)
    np.testing.assert_allclose(bp.log_gradient_norms(records, [0, 1.0])[:, 0], steps_back * np.log(0.1))
    np.testing.assert_allclose(bp.log_gradient_norms(records)[:, 0], steps_back * np.log(7), atol=1e-9)


def test_gradients_that_do_not_fit_are_refused():
    records = records_of(random())
    for gradient in (np.zeros(2), np.zeros((3, 3)), 1.0):
        with pytest.raises(bp.ShapeError):
            bp.log_gradient_norms(records, gradient)
    with pytest.raises(bp.NonFiniteError):
        bp.log_gradient_norms(records, [0, np.nan, 1])
