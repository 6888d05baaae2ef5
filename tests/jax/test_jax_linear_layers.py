"""Linear recurrent functions for JAX: the engine's numbers, under JAX's transforms."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

import bppsa_cupy as bp
import bppsa_cupy.jax as bj

FUNCTIONS = {
    "MinGRU": {},
    "MinLSTM": {},
    "SRU": {},
    "QRNN": {},
    "LRU": {},
    "RGLRU": {},
    "DiagonalSSM": {},
}


@pytest.mark.parametrize("name", some("LRU", long=[name for name in FUNCTIONS if name != "LRU"]))
def test_passes_are_the_engines(name: str) -> None:
    with jax.enable_x64(True):
        rng, options = np.random.default_rng(0), FUNCTIONS[name]
        sizes = (4,) if name == "RGLRU" else (3, 4)
        layer, function = getattr(bp, name)(*sizes, **options), getattr(bj, name)(*sizes, **options)
        params = function.init(jax.random.key(0), jnp.float64)
        x, lengths = rng.standard_normal((2, 9, layer.input_size)), np.array([9, 4])
        parameters = {key: np.asarray(value) for key, value in params.items()}
        y, saved = bp.functional.forward(layer, parameters, x, lengths=lengths)
        weights = rng.standard_normal(y.shape)
        wanted = bp.functional.vjp(saved, weights)

        @jax.jit
        def apply(params, x):
            return function(params, x, lengths=lengths)

        (output, after), pull = jax.vjp(apply, params, jnp.asarray(x))
        np.testing.assert_allclose(output, y, atol=1e-12)
        np.testing.assert_allclose(after, saved.states, atol=1e-12)
        by_params, by_x = pull((jnp.asarray(weights), jnp.zeros_like(after)))
        np.testing.assert_allclose(by_x, wanted.input, atol=1e-11)
        for key, gradient in wanted.parameters.items():
            np.testing.assert_allclose(by_params[key], gradient, atol=1e-10, err_msg=key)


def test_transforms_and_habits() -> None:
    with jax.enable_x64(True):
        function = bj.MinGRU(3, 4)
        params = function.init(jax.random.key(1), jnp.float64)
        x = jax.random.normal(jax.random.key(2), (5, 2, 6, 3), jnp.float64)
        mapped = jax.vmap(lambda x: function(params, x)[0])(x)
        np.testing.assert_allclose(mapped[3], function(params, x[3])[0], atol=1e-6)
        np.testing.assert_allclose(function(params, x[0, 0])[0], function(params, x[0])[0][0], atol=1e-6)
        _, tangent = jax.jvp(lambda x: function(params, x)[0], (x[0],), (jnp.ones_like(x[0]),))
        step = (function(params, x[0] + 1e-2)[0] - function(params, x[0] - 1e-2)[0]) / 2e-2
        np.testing.assert_allclose(tangent, step, atol=1e-3)
        assert function == bj.MinGRU(3, 4) != bj.MinGRU(3, 5) and len({function, bj.MinGRU(3, 4)}) == 1
        with pytest.raises(bp.ShapeError, match="pass float64 of shape"):
            function(params, x[0], jnp.zeros((1, 3, 4)))


@pytest.mark.long
def test_complex_states_go_on_with_a_batch_and_without() -> None:
    with jax.enable_x64(True):
        function = bj.LRU(3, 4, batch_first=False)
        params = function.init(jax.random.key(1), jnp.float64)
        x = jax.random.normal(jax.random.key(2), (8, 2, 3), jnp.float64)
        full, last = function(params, x)
        _, middle = function(params, x[:5])
        rest, after = function(params, x[5:], (middle,))
        assert middle.dtype == jnp.complex128
        np.testing.assert_allclose(rest, full[5:], atol=1e-6)
        np.testing.assert_allclose(after, last, atol=1e-6)
        alone, _ = function(params, x[5:, 1], middle[:, 1], lengths=3)
        np.testing.assert_allclose(alone, full[5:, 1], atol=1e-6)
        assert pickle.loads(pickle.dumps(function)) == function
        moduli = np.sort(np.repeat(np.exp(-np.exp(params["nu_log_l0"])), 2))[::-1]
        arrays = {name: np.asarray(value) for name, value in params.items()}
        steps = bp.functional.jacobians(function.layer, arrays, np.asarray(x)).dense()
        np.testing.assert_allclose(
            np.linalg.svd(steps, compute_uv=False), np.tile(moduli, (8, 2, 1)), atol=1e-6
        )
