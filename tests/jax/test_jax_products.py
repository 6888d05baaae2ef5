"""Differentiable products in JAX, under jit, vmap, grad and jvp, against dense matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import bppsa_cupy as bp

jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.fixture(autouse=True)
def in_float64() -> Any:
    with jax.enable_x64(True):
        yield


def test_derivatives(rng: np.random.Generator) -> None:
    import bppsa_cupy.jax as bj

    a, b = (sp.csc_array(rng.random((5, 5)) * (rng.random((5, 5)) < 0.5)) for _ in range(2))
    product, matmul = bj.plan_product(a, b, mask=a), bj.plan_matmul(a)
    rows, columns = (np.asarray(places) for places in sp.coo_array(a).coords)
    x, y = rng.standard_normal((2, 5, 3))

    def dense(matrix: Any, values: Any) -> Any:
        coo = sp.coo_array(matrix)
        return jnp.zeros((5, 5), values.dtype).at[coo.coords].set(values)

    def reference(u: Any, v: Any) -> Any:
        return (dense(a, u) @ dense(b, v))[rows, columns]

    cases = [
        (product, reference, (a.data, b.data)),
        (matmul, lambda values, x: dense(a, values) @ x, (a.data, x)),
        (matmul.sddmm, lambda x, y: (x @ y.T)[rows, columns], (x, y)),
    ]
    for ours, theirs, arrays in cases:
        way = tuple(rng.standard_normal(array.shape) for array in arrays)
        several = rng.standard_normal((3, *arrays[0].shape))

        def outcomes(call: Any, arrays: Any = arrays, way: Any = way, several: Any = several) -> Any:
            def gradient(*arrays: Any) -> Any:
                return jax.grad(lambda *x: jnp.sin(call(*x)).sum(), (0, 1))(*arrays)

            second = jax.grad(lambda *x: sum((g**2).sum() for g in gradient(*x)), (0, 1))
            mapped = jax.vmap(gradient, (0, None))
            return call(*arrays), jax.jvp(call, arrays, way), second(*arrays), mapped(several, arrays[1])

        results, wanted = (jax.jit(outcomes, static_argnums=0)(call) for call in (ours, theirs))
        np.testing.assert_array_equal(ours(*arrays), results[0])  # without jit
        for actual, expected in zip(jax.tree.leaves(results), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-10)
        batch = ours(several[:, None], jnp.broadcast_to(arrays[1], (2, *arrays[1].shape)))
        np.testing.assert_allclose(batch[2, 1], ours(several[2], arrays[1]), rtol=1e-12, atol=1e-12)
    with pytest.raises(bp.ShapeError):
        product(a.data, b.data.astype(np.float32))
