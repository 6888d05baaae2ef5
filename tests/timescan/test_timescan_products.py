"""Gradients by weights over whole sequences: how many partial sums, and what they come to."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bppsa_cupy.devices import get_device
from bppsa_cupy.timescan import products

HOST = get_device("host")
SIZES = st.integers(1, 5000), st.integers(1, 600), st.integers(1, 3000), st.integers(1, 3000)


@given(*SIZES)
@example(5000, 600, 1, 1)
def test_a_hosts_partial_sums_are_as_many_as_have_enough_to_do(steps, batch, rows, columns):
    """2¹¹ terms, eight times as many as columns, and 2²⁰ multiply-adds: each one where it has room."""

    def fits(number):
        terms = steps * batch / number
        work = math.floor(2**20 / (rows * columns))
        return number <= steps and terms >= 2**11 and terms >= 8 * columns and terms >= work

    expected = max([1, *filter(fits, range(1, 9))])
    assert products.partial_sums(HOST, steps, batch, rows, columns) == expected
    size = products.partial_sums_size(HOST, steps, batch, rows, columns)
    assert size == expected * (rows * columns + rows)


@given(*SIZES, st.integers(1, 200))
def test_a_gpus_partial_sums_keep_it_busy(steps, batch, rows, columns, workers):
    gpu = SimpleNamespace(xp=None, workers=workers)
    fits = [n for n in range(1, max(16, workers) + 1) if n <= steps and steps * batch >= 256 * n]
    assert products.partial_sums(gpu, steps, batch, rows, columns) == max(fits, default=1)


@pytest.mark.parametrize(
    "steps, batch, rows, columns, sums",
    [(5, 2, 3, 4, 1), (1024, 4, 64, 64, 2), (4096, 2, 1, 512, 2), (2048, 4, 64, 64, 4)],
)
@pytest.mark.parametrize("initial, reverse", [(False, False), (True, False), (True, True)])
def test_a_weights_gradient_is_the_sum_over_steps_and_samples(
    steps, batch, rows, columns, sums, initial, reverse, rng
):
    """Against einsum; with an initial state a step's value is that of the step before it."""
    assert products.partial_sums(HOST, steps, batch, rows, columns) == sums
    delta, values = (
        rng.standard_normal((steps, rows + 2, batch)),
        rng.standard_normal((steps, columns, batch)),
    )
    first = rng.standard_normal((columns, batch)) if initial else None
    weight, bias = np.zeros((rows, columns)), np.zeros(rows)
    space = np.zeros(products.partial_sums_size(HOST, steps, batch, rows, columns))
    products.weight_gradient(HOST, delta, 1, values, space, weight, bias, first, reverse)()
    if initial:
        values = np.concatenate([values[1:], [first]] if reverse else [[first], values[:-1]])
    own = delta[:, 1 : rows + 1]
    scale = np.sqrt(steps * batch)
    np.testing.assert_allclose(weight, np.tensordot(own, values, ((0, 2), (0, 2))), atol=1e-13 * scale)
    np.testing.assert_allclose(bias, own.sum((0, 2)), atol=1e-13 * scale)
