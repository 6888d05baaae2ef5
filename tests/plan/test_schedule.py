"""Schedules as data: equal to algorithm 1 as printed, and to the serial scan by dense NumPy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from partition_cases import schedules

from bppsa_cupy.plan.schedule import (
    blelloch,
    hybrid,
    linear,
    up_sweep_levels,
    with_input_gradient,
)

SIZES = range(41)


def random_chain(n, seed=0):
    """a_0 (d_1,), a_k (d_{k+1}, d_k) with sizes 1 to 4, columns of a_{k+1} matching rows of a_k."""
    generator = np.random.default_rng(seed + n)
    sizes = generator.integers(1, 5, n + 1)
    matrices = [generator.standard_normal((sizes[k], sizes[k - 1])) for k in range(1, n + 1)]
    return [generator.standard_normal(sizes[0]), *matrices]


def serial(a):
    """v(1), …, v(n + 1), one matrix after the other."""
    results = [a[0]]
    for matrix in a[1:]:
        results.append(matrix @ results[-1])
    return results


def evaluate(schedule, a):
    """Every segment the schedule computes, a_0 … a_n included; asserts single assignment."""
    values = {(k, k + 1): a[k] for k in range(len(a))}
    for step in schedule.steps:
        assert step.out not in values
        values[step.out] = values[step.right] @ values[step.left]
    return values


def every_schedule(n):
    yield linear(n)
    yield blelloch(n)
    yield from (hybrid(n, levels) for levels in range(up_sweep_levels(n) + 1))


MV, MM = 0, 1


def is_legal(schedule):
    """The laws, one row after the other, with the level of every segment there is."""
    n, levels, before = schedule.n, {}, 0
    for level, begin, split, end, kind, worker in schedule.table.tolist():
        if not (0 <= begin < split < end <= n + 1 and kind == (MM if begin else MV)):
            return False
        if level < before or worker < 0 or (begin, end) in levels:
            return False
        for segment in ((begin, split), (split, end)):
            if segment[1] - segment[0] > 1 and levels.get(segment, level) >= level:
                return False
        levels[begin, end] = before = level
    return all((0, k) in levels for k in range(2, n + 1))


@pytest.mark.parametrize("n", SIZES)
def test_schedules_obey_their_laws_and_give_the_serial_scan(n):
    a = random_chain(n)
    expected = serial(a)
    for schedule in every_schedule(n):
        assert is_legal(schedule)
        full = with_input_gradient(schedule)
        assert with_input_gradient(full) is full and (n == 0 or full.computes_input_gradient)
        values = evaluate(full, a)
        for k in range(1, n + 2):
            np.testing.assert_allclose(values[0, k], expected[k - 1], rtol=1e-9, atol=1e-9)
        read = {operand for step in schedule.steps for operand in (step.left, step.right)}
        assert all(step.out in read for step in schedule.steps if step.kind == "mm"), "a product is dead"


@given(st.integers(0, 20).flatmap(schedules))
def test_schedules_of_any_splits_give_the_serial_scan(schedule):
    assert is_legal(schedule)
    a = random_chain(schedule.n)
    values = evaluate(schedule, a)
    for k, expected in enumerate(serial(a)[: schedule.n], 1):
        np.testing.assert_allclose(values[0, k], expected, rtol=1e-9, atol=1e-9)


def algorithm_1(n):
    """Algorithm 1 as printed, in place, on the segments' names: the products in order, and out."""
    a: list = [(k, k + 1) for k in range(n + 1)]
    products = []

    def diamond(x, y):
        if x is None or y is None:
            return y if x is None else x
        assert x[1] == y[0]
        products.append((x[0], x[1], y[1]))
        return x[0], y[1]

    top = math.ceil(math.log2(n + 1))
    for d in range(0, top - 1):
        for i in range(0, n - 2**d + 1, 2 ** (d + 1)):
            left, right = i + 2**d - 1, min(i + 2 ** (d + 1) - 1, n)
            a[right] = diamond(a[left], a[right])
    a[n] = None
    for d in range(top - 1, -1, -1):
        for i in range(0, n - 2**d + 1, 2 ** (d + 1)):
            left, right = i + 2**d - 1, min(i + 2 ** (d + 1) - 1, n)
            saved = a[left]
            a[left] = a[right]
            a[right] = diamond(a[right], saved)
    return products, a


@pytest.mark.parametrize("n", SIZES)
def test_blelloch_is_algorithm_1_as_printed(n):
    products, out = algorithm_1(n)
    assert out == [None, *((0, k) for k in range(1, n + 1))]
    # Products of the up-sweep that end at a_n are dead: the exclusive scan never reads the total.
    assert [(s.begin, s.split, s.end) for s in blelloch(n).steps] == [p for p in products if p[2] <= n]


@given(st.integers(0, 40), st.integers(0, 5))
def test_makers_are_the_steps_that_compute_the_operands(n, levels):
    schedule = with_input_gradient(hybrid(n, min(levels, up_sweep_levels(n))))
    made = {step.out: position for position, step in enumerate(schedule.steps)}
    expected = [[made.get(step.left, -1), made.get(step.right, -1)] for step in schedule.steps]
    assert schedule.makers.tolist() == expected


@pytest.mark.parametrize("n", SIZES)
def test_extremes_of_the_hybrid(n):
    assert hybrid(n, 0).steps == linear(n).steps
    assert hybrid(n, up_sweep_levels(n)).steps == blelloch(n).steps


@given(st.integers(1, 2000))
def test_depth_is_logarithmic(n):
    schedule = blelloch(n)
    assert schedule.depth <= max(2 * math.ceil(math.log2(n + 1)) - 1, 0)
    assert len(schedule.steps) <= 2 * n


def test_small_chains():
    assert linear(0).steps == blelloch(0).steps == linear(1).steps == blelloch(1).steps == ()
    assert [s.out for s in blelloch(2).steps] == [(0, 2)]
    assert [s.out for s in with_input_gradient(linear(1)).steps] == [(0, 2)]
    assert with_input_gradient(linear(0)).steps == ()
