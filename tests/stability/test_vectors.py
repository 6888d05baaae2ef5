"""Covariant Lyapunov vectors against an implementation of its own, and Jacobians that the caller brings."""

import numpy as np
import pytest
import scipy.sparse

import bppsa_cupy as bp


def henon_jacobians(steps):
    h, result = np.array([0.1, 0.1]), []
    for _ in range(steps):
        result.append([[-2.8 * h[0], 1], [0.3, 0]])
        h = np.array([1 - 1.4 * h[0] ** 2 + h[1], 0.3 * h[0]])
    return np.array(result)


def network_jacobians(steps, size=100):
    rng = np.random.default_rng(1)
    W = 4 * rng.standard_normal((size, size)) / size**0.5 * np.exp(-0.05 * np.arange(size))
    h, result = rng.standard_normal(size), []
    for _ in range(steps):
        h = np.tanh(W @ h)
        result.append((1 - h**2)[:, None] * W)
    return np.array(result)


def covariant_by_subspaces(jacobians, t, past, future, count):
    """Vector i after step t: where the i fastest directions of the past meet the slowest ones of the future,
    by singular vectors of products that QR decompositions keep in range (Wolfe & Samelson 2007)."""
    size = jacobians.shape[1]

    def directions(matrices):
        q = np.linalg.qr(np.random.default_rng(7).standard_normal((size, count)))[0]
        for matrix in matrices:
            q = np.linalg.qr(matrix @ q)[0]
        return q

    forward = directions(jacobians[t + 1 - past : t + 1])
    backward = directions(jacobians[i].T for i in range(t + future, t, -1))
    vectors = [forward[:, 0]]
    for i in range(1, count):
        overlap = backward[:, :i].T @ forward[:, : i + 1]
        vectors.append(forward[:, : i + 1] @ np.linalg.svd(overlap)[2][-1])
    return np.array(vectors).T


@pytest.mark.parametrize(
    ("jacobians", "count", "settle"),
    [(henon_jacobians(200), 2, 60), (network_jacobians(600), 3, 280)],
    ids=["Hénon", "100 units"],
)
def test_covariant_vectors(jacobians, count, settle):
    vectors = bp.lyapunov_vectors(jacobians, count=count)
    v = vectors.covariant(settle=settle)[:, 0]
    t = len(v) - 2
    expected = covariant_by_subspaces(jacobians, t, t - 5, settle, count)
    cosines = np.abs((v[t] * expected).sum(axis=0))
    np.testing.assert_allclose(cosines, 1, atol=1e-6)
    moved = jacobians[t + 1] @ v[t]
    cosines = np.abs((moved / np.linalg.norm(moved, axis=0) * v[t + 1]).sum(axis=0))
    np.testing.assert_allclose(cosines, 1, atol=1e-10)


def test_q_and_r_and_finite_times():
    jacobians = network_jacobians(60, 5)
    vectors = bp.lyapunov_vectors(jacobians)
    product = np.einsum("tij,tjk->tik", vectors.q[1:, 0], vectors.r[1:, 0])
    np.testing.assert_allclose(product, jacobians[1:] @ vectors.q[:-1, 0], atol=1e-12)
    np.testing.assert_allclose(vectors.finite_time(20).mean(axis=0), vectors.exponents, rtol=1e-12)
    expected = np.linalg.slogdet(jacobians)[1].mean()
    assert vectors.exponents.sum() == pytest.approx(expected, rel=1e-10)


def test_arrays_and_scipy_matrices_are_records():
    """Arrays hold J_t, records its transpose."""
    jacobians = network_jacobians(30, 4)
    net = bp.Sequential([bp.RNN(2, 4)], (30, 2), dtype="float64", device="host", seed=0)
    net.forward(np.random.default_rng(0).standard_normal((2, 30, 2)))
    records = net.transposed_jacobians()
    for function in (bp.lyapunov_exponents, bp.singular_values, bp.log_gradient_norms):
        sparse = [scipy.sparse.csr_array(matrix) for matrix in jacobians]
        np.testing.assert_array_equal(function(sparse), function(jacobians))
        np.testing.assert_array_equal(function(jacobians[:, None]), function(jacobians))
        np.testing.assert_allclose(function(records.dense().swapaxes(2, 3)), function(records), rtol=1e-12)


@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 4), (0, 2, 2)])
def test_arrays_of_another_shape_are_refused(shape):
    with pytest.raises(bp.ShapeError, match=r"\(T, S, S\)"):
        bp.lyapunov_exponents(np.ones(shape))
    jacobians = np.ones((3, 2, 2))
    with pytest.raises(bp.ShapeError, match="settle=3"):
        bp.lyapunov_vectors(jacobians).covariant(settle=3)
