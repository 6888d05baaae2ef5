"""Fixed points: those that algebra gives, for every kind of system, and slow points."""

import itertools

import numpy as np
import pytest
from scipy.optimize import brentq

import bppsa_cupy as bp

ROOT = brentq(lambda h: np.tanh(2 * h) - h, 0.5, 1)
CANDIDATES = np.random.default_rng(0).uniform(-1.2, 1.2, (300, 3))


def numpy_step(h):
    h = np.tanh(2 * h)
    return h, 2 * np.diag(1 - h**2)


def by_torch(candidates):
    torch = pytest.importorskip("torch")
    return bp.fixed_points(lambda h: torch.tanh(2 * h), torch.tensor(candidates))


def by_jax(candidates):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        return bp.fixed_points(lambda h: jax.numpy.tanh(2 * h), jax.numpy.asarray(candidates))


def by_network(candidates):
    net = bp.Sequential([bp.RNN(1, 3, bias=False)], (4, 1), dtype="float64", device="host")
    net.parameters["0.weight_hh_l0"][...] = 2 * np.eye(3)
    return bp.fixed_points(net, candidates)


@pytest.mark.parametrize("find", [lambda c: bp.fixed_points(numpy_step, c), by_torch, by_jax, by_network])
def test_a_flip_flop_of_three_bits_has_27_fixed_points(find):
    """Three units of h = tanh(2 h): eight stable memories, and saddles between them."""
    result = find(CANDIDATES)
    expected = np.array(list(itertools.product([-ROOT, 0, ROOT], repeat=3)))
    fixed = result.points[result.is_fixed]
    order = np.lexsort(fixed.round(3).T[::-1])
    np.testing.assert_allclose(fixed[order], expected, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(result.is_stable[result.is_fixed], (np.abs(fixed) > 0.5).all(axis=1))
    assert result.counts.sum() == 300 and (np.diff(result.residual) >= 0).all()
    slope = 2 * (1 - np.tanh(2 * fixed) ** 2)
    np.testing.assert_allclose(
        np.abs(result.eigenvalues[result.is_fixed]), -np.sort(-slope, axis=1), rtol=0, atol=1e-6
    )


def test_inputs_move_fixed_points():
    rng = np.random.default_rng(1)
    net = bp.Sequential([bp.GRU(2, 8)], (1, 2), dtype="float64", device="host", seed=3)
    x = rng.standard_normal((5, 2))
    result = bp.fixed_points(net, rng.standard_normal((5, 8)), inputs=x)
    assert result.is_fixed.all() and len(result) == 5
    net.forward(result.inputs[:, None], states={0: result.points[None]})
    np.testing.assert_allclose(net.last_pass.states[0][0], result.points, rtol=0, atol=1e-8)


def test_a_slow_point_is_a_minimum_of_the_residual():
    """h + 0.01 + h² has no fixed point; it is slowest at 0."""
    result = bp.fixed_points(lambda h: (h + 0.01 + h**2, 1 + 2 * np.diag(h)), [[0.3], [-0.2]])
    assert not result.is_fixed.any() and len(result) == 1
    np.testing.assert_allclose(result.points, 0, atol=1e-4)
    np.testing.assert_allclose(result.residual, 0.01, rtol=1e-6)


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(bp.ShapeError, match=r"\(3,\).*\(M, S\)"):
        bp.fixed_points(numpy_step, np.ones(3))
    with pytest.raises(bp.ShapeError, match=r"\(2, 4\).*\(3, F\)"):
        bp.fixed_points(numpy_step, np.ones((3, 3)), inputs=np.ones((2, 4)))
    with pytest.raises(bp.NonFiniteError, match="candidate 1"):
        bp.fixed_points(numpy_step, [[0.0], [np.nan]])
