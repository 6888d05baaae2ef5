"""Singular values of steps, gradients on their way back: by NumPy, and their laws."""

import numpy as np
import pytest
from chain_cases import network_records, records_of

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
    monkeypatch.setattr("bppsa_cupy.records.records.BLOCK", 1)
    np.testing.assert_array_equal(bp.singular_values(records), values)
    np.testing.assert_allclose(values.prod(axis=2), np.abs(np.linalg.det(records.dense())), rtol=1e-10)


# ---- gradients ----


def test_norms_beyond_the_range_of_floats():
    jacobians = np.full((400, 2, 1, 1), 10.0)
    jacobians[:, 1] = 0.1
    norms = bp.log_gradient_norms(records_of(jacobians))
    np.testing.assert_allclose(norms[0], [399 * np.log(10), -399 * np.log(10)], rtol=1e-12)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_gradients_go_back_step_by_step(direction):
    jacobians = random()
    largest = bp.log_gradient_norms(records_of(jacobians, direction=direction))
    back = range(5, -1, -1) if direction == "forward" else range(6)
    products = np.tile(np.eye(3), (2, 1, 1))
    for t in back:
        np.testing.assert_allclose(np.exp(largest[t]), np.linalg.norm(products, 2, axis=(1, 2)), rtol=1e-12)
        products = products @ jacobians[t]


def test_long_gradients_stay_in_range():
    records = records_of(np.tile(np.diag([7.0, 0.1]), (3000, 1, 1, 1)))
    steps_back = np.arange(2999, -1, -1)
    np.testing.assert_allclose(bp.log_gradient_norms(records)[:, 0], steps_back * np.log(7), atol=1e-9)
