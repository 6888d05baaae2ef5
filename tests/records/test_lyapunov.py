"""Lyapunov exponents: of linear networks by eigenvalues, of others by QR by hand, and their laws."""

import numpy as np
import pytest
from chain_cases import network_records, records_of, wide
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import assert_refused

import bppsa_cupy as bp

exponents = bp.lyapunov_exponents


def by_hand(jacobians, order):
    """Benettin's algorithm on one sample's J_t (T, S, S)."""
    basis, sums = np.eye(jacobians.shape[-1]), 0
    for t in order:
        basis, r = np.linalg.qr(jacobians[t] @ basis)
        sums += np.log(np.abs(np.diag(r)))
    return np.sort(sums / len(order))[::-1]


def linear(weight, steps, batch=2):
    """A network whose states are so small that tanh passes them: J_t is W_hh at every step."""
    net = bp.Sequential([bp.RNN(1, len(weight))], (steps, 1), dtype="float64", device="host")
    net.parameters.flat[...] = 0
    net.parameters["0.weight_hh_l0"][...] = weight
    net.parameters["0.weight_ih_l0"][...] = 1e-12
    net.forward(np.random.default_rng(0).uniform(-1, 1, (batch, steps, 1)))
    return net.transposed_jacobians()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_of_a_linear_network_they_are_the_logarithms_of_the_eigenvalues_moduli(seed):
    """Complex pairs among them."""
    weight = 0.05 * wide(np.random.default_rng(seed), 5, 1.0) + np.diag([0.9, 0.75, 0.6, 0.45, 0.3])
    weight[:2, :2] += [[0.0, -0.2], [0.2, 0.0]]
    values = np.linalg.eigvals(weight)
    assert np.iscomplex(values).any() and np.abs(values).max() < 1
    records = linear(weight, 2000)
    np.testing.assert_array_equal(records.dense()[700, 1], weight.T)
    expected = np.sort(np.log(np.abs(values)))[::-1]
    np.testing.assert_allclose(exponents(records), [expected, expected], rtol=0, atol=2e-3)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("layer", [bp.GRU, bp.LSTM, bp.RNN])
def test_of_a_network_they_are_qr_by_hand(layer, direction):
    _, records = network_records(layer(3, 4, num_layers=2, bidirectional=True), 40, 2)
    chain = records.where(inner=1, direction=direction)
    order = range(40) if direction == "forward" else range(39, -1, -1)
    result = exponents(chain)
    jacobians = chain.dense().swapaxes(2, 3)
    assert result.shape == (2, 8 if layer is bp.LSTM else 4) and result.dtype == np.float64
    for sample in range(2):
        expected = by_hand(jacobians[:, sample], order)
        np.testing.assert_allclose(result[sample], expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_padding_counts_for_nothing(direction):
    """A sample that ends early has the exponents of its own steps alone."""
    layer = bp.GRU(3, 4, bidirectional=True)
    _, records = network_records(layer, 12, 3, lengths=[5, 12, 1])
    chain = records.where(direction=direction)
    np.testing.assert_array_equal(chain.lengths(), [5, 12, 1])
    result = exponents(chain)
    for sample, length in enumerate([5, 12, 1]):
        alone = exponents(chain.sample(sample).where(steps=range(length)))
        np.testing.assert_allclose(result[sample], alone[0], rtol=1e-12)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 99), steps=st.integers(1, 6), size=st.integers(1, 4), batch=st.integers(1, 3),
    scale=st.floats(1e-3, 1e3), direction=st.sampled_from(["forward", "backward"]),
)  # fmt: skip
def test_their_sum_is_the_mean_of_the_logarithms_of_determinants(seed, steps, size, batch, scale, direction):
    jacobians = scale * np.random.default_rng(seed).standard_normal((steps, batch, size, size))
    expected = np.linalg.slogdet(jacobians)[1].mean(axis=0)
    result = exponents(records_of(jacobians, direction=direction))
    assert (np.diff(result, axis=1) <= 0).all()
    np.testing.assert_allclose(result.sum(axis=1), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_long_chains_neither_overflow_nor_vanish(scale):
    """Each step alone nearly leaves the range."""
    steps, turn = 3000, 0.3
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    result = exponents(records_of(np.tile(scale * rotation, (steps, 1, 1, 1))))
    np.testing.assert_allclose(result, np.log(scale), rtol=1e-12)


def test_lost_directions_are_minus_infinity():
    jacobians = np.tile(np.diag([2.0, 0.0]), (3, 1, 1, 1))
    np.testing.assert_array_equal(exponents(records_of(jacobians)), [[np.log(2), -np.inf]])
    first_alone = np.concatenate([jacobians[:1], np.tile(np.diag([2.0, 0.5]), (3, 1, 1, 1))])
    np.testing.assert_allclose(exponents(records_of(first_alone), burn_in=1), [[np.log(2), np.log(0.5)]])


@pytest.mark.parametrize("options, value, fix", [
    ({"count": 4}, "count=4", "at most 3"), ({"burn_in": 5}, "burn_in=5", "5 steps"),
])  # fmt: skip
def test_refused_arguments(options, value, fix):
    records = records_of(np.random.default_rng(0).standard_normal((5, 2, 3, 3)))
    assert_refused(lambda: exponents(records, **options), bp.ShapeError, value, fix)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_refused_by_its_step(value):
    jacobians = np.ones((5, 2, 3, 3))
    jacobians[3, 1, 0, 2] = value
    with pytest.raises(bp.NonFiniteError, match="0 RNN l0 step 3"):
        exponents(records_of(jacobians))
