"""Resets inside of sequences: the parts between them are sequences of their own."""

from __future__ import annotations

from functools import partial
from itertools import pairwise, product

import numpy as np
import pytest
from cell_cases import SLOW
from jax_cases import bj, jax, jnp, x64  # noqa: F401
from marks import some, some_rows
from tolerances import assert_close

import bppsa_cupy as bp

LAYERS = {"RNN": bp.RNN, "GRU": bp.GRU, "LSTM": bp.LSTM, "slow": partial(bp.CellLayer, SLOW)}
STEPS = 11
METHODS = ("bp", "blelloch")


def network(name, device="host", **options):
    layer = LAYERS[name](3, 4, 2, bidirectional=True, **options)
    return bp.Sequential([layer, bp.Tanh()], (None, 3), dtype="float64", device=device, seed=4)


def marks_and_parts():
    """Marks (B, T), and the samples and steps of the parts between them."""
    marks = np.zeros((3, STEPS), bool)
    marks[0, [2, 3, 9]] = marks[2, [0, 10]] = True
    cuts = [[0, 2, 3, 9, STEPS], [0, STEPS], [0, 10, STEPS]]
    parts = [(b, slice(i, j)) for b, bounds in enumerate(cuts) for i, j in pairwise(bounds)]
    return marks, parts


@pytest.mark.parametrize(
    "name, method",
    some_rows(*product(["GRU", "LSTM"], METHODS), long=product(["RNN", "slow"], METHODS)),
)
def test_parts_are_sequences(name, method, device, rng):
    net = network(name, device)
    marks, parts = marks_and_parts()
    x, gradient = rng.standard_normal((3, STEPS, 3)), rng.standard_normal((3, STEPS, 8))
    lengths = np.array([steps.stop - steps.start for _, steps in parts])
    padded, by_padded = (np.zeros((len(parts), STEPS, columns)) for columns in (3, 8))
    for row, (sample, steps) in enumerate(parts):
        padded[row, : lengths[row]], by_padded[row, : lengths[row]] = (
            x[sample, steps],
            gradient[sample, steps],
        )
    expected = net.forward(padded, lengths=lengths)
    expected = {"y": expected.copy(), "x": net.backward(by_padded, method, input_gradient=True).copy()}
    weights = net.gradients.to_host()
    y = net.forward(x, resets=marks)
    by_input = net.backward(gradient, method, input_gradient=True)
    for key, actual in (("y", y), ("x", by_input)):
        for row, (sample, steps) in enumerate(parts):
            wanted = net.device.to_host(expected[key])[row, : lengths[row]]
            assert_close(net.device.to_host(actual)[sample, steps], wanted, 99, label=key)
    for key, value in net.gradients.to_host().items():
        assert_close(value, weights[key], 99, label=key)


@pytest.mark.parametrize("name", some("LSTM", long=["RNN"]))
def test_jacobians_and_exponents_see_resets(name, rng):
    net = network(name)
    marks, parts = marks_and_parts()
    x = rng.standard_normal((3, STEPS, 3))
    net.forward(x, resets=marks)
    records = net.transposed_jacobians()
    for direction in ("forward", "backward"):
        jacobians = records.where(inner=0, direction=direction).dense()  # (T, B, S, S)
        for sample, steps in parts:
            net.forward(x[None, sample, steps])
            part = net.transposed_jacobians().where(inner=0, direction=direction).dense()
            expected = part[:, 0].copy()
            if direction == "forward" and marks[sample, steps.start]:
                expected[0] = 0
            if direction == "backward" and steps.stop < STEPS:
                expected[-1] = 0
            assert_close(jacobians[steps, sample], expected, 99)
    exponents = bp.lyapunov_exponents(records.where(inner=0, direction="forward"))
    assert np.isneginf(exponents[[0, 2]]).all()
    assert np.isfinite(exponents[1]).all()


@pytest.mark.parametrize("name", some("LSTM", long=["RNN"]))
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.usefixtures("x64")
def test_jax_and_functions_agree_with_a_network(name, batch_first, rng):
    net, (marks, _) = network(name), marks_and_parts()
    function = getattr(bj, name)(3, 4, 2, bidirectional=True, batch_first=batch_first)
    x, gradient = rng.standard_normal((3, STEPS, 3)), rng.standard_normal((3, STEPS, 8))
    y = net.forward(x, resets=marks)
    by_input = net.backward(gradient, input_gradient=True)
    params = {key.removeprefix("0."): jnp.asarray(value) for key, value in net.parameters.to_host().items()}

    def turned(array):
        return jnp.asarray(array if batch_first else array.swapaxes(0, 1))

    def loss(params, x):
        y = jnp.tanh(function(params, x, resets=turned(marks))[0])
        return (y * turned(gradient)).sum(), y

    (_, actual), back = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(params, turned(x))
    assert_close(np.asarray(actual), np.asarray(turned(y)), 99)
    assert_close(np.asarray(back[1]), np.asarray(turned(by_input)), 99)
    for key, value in back[0].items():
        assert_close(np.asarray(value), net.gradients.to_host()[f"0.{key}"], 99, label=key)
    each = jax.vmap(lambda x, marks: function(params, x, resets=marks)[0], in_axes=sample_axis(batch_first))
    assert_close(np.asarray(each(turned(x), turned(marks))), np.arctanh(y), 99)


def sample_axis(batch_first):
    return 0 if batch_first else 1
