"""`bppsa_cupy.jax.jacobians` against jax.jacobian."""

from __future__ import annotations

import numpy as np
import pytest
from jax_cases import bj, draw, function_of, jax, jnp, step_of, x64  # noqa: F401
from marks import some
from refusals import assert_refused

import bppsa_cupy as bp


def leaky(x, h):
    weight = jnp.sin(jnp.linspace(-1, 1, 9, dtype=h.dtype).reshape(3, 3))
    return 0.8 * h + 0.2 * jnp.tanh(h @ weight.T + x)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", some("lstm", long=["gru"]))
def test_steps_of_a_layer(name) -> None:
    function = function_of(name, 2, 3, 1)
    params, x, state = draw(function, 2, 4)
    lengths = np.array([4, 2])
    chain = bj.jacobians(function, params, x, state, lengths=lengths)
    np.testing.assert_array_equal(chain.lengths(), lengths)
    components = state if isinstance(state, tuple) else (state,)

    def step(x_t, h):
        gates = [(x_t @ params["weight_ih_l0"].T + params["bias_ih_l0"]),
                 (h[0] @ params["weight_hh_l0"].T + params["bias_hh_l0"])]  # fmt: skip
        gates = [jnp.stack(jnp.split(g, function.layer.cell.gates, -1)) for g in gates]
        return step_of(name, *gates, *h)

    by_step = bj.jacobians(step, np.swapaxes(x, 0, 1), tuple(part[0] for part in components))
    assert by_step[0].name == "step l0"
    np.testing.assert_allclose(by_step.dense()[:, 0], chain.dense()[:, 0], atol=1e-12)
    alone = bj.jacobians(function, params, x[1], jax.tree.map(lambda part: part[:, 1], state), lengths=2)
    np.testing.assert_allclose(alone.dense()[:, 0], chain.dense()[:, 1], atol=1e-14)


@pytest.mark.parametrize("batch", some(3, long=[None]))
def test_a_step_of_ones_own(batch) -> None:
    rng = np.random.default_rng(0)
    axes = () if batch is None else (batch,)
    x, h0 = (rng.standard_normal((*more, *axes, 3), np.float32) for more in ((4,), ()))
    records = bj.jacobians(leaky, x, h0)
    assert repr(records) == "JacobianRecords(0 leaky l0 × 4)" and records[0].data.dtype == np.float32
    h, dense = h0.reshape(-1, 3), records.dense()
    jacobian = jax.jit(jax.jacobian(leaky, 1))
    for t, x_t in enumerate(x.reshape(4, -1, 3)):
        for sample in range(len(h)):
            np.testing.assert_allclose(dense[t, sample], jacobian(x_t[sample], h[sample]).T, atol=1e-6)
        h = leaky(x_t, h)
    alone = bj.jacobians(lambda h: leaky(x[0], h), None, h0, steps=2)
    np.testing.assert_allclose(alone.dense(), bj.jacobians(leaky, x[[0, 0]], h0).dense(), atol=1e-6)
    assert bp.lyapunov_exponents(records).shape == (batch or 1, 3)


def test_last_steps_that_are_the_identity_count() -> None:
    records = bj.jacobians(lambda x, h: x * h, jnp.array([[0.5]] * 5 + [[1.0]] * 5), jnp.ones(1))
    np.testing.assert_allclose(bp.lyapunov_exponents(records), [[np.log(0.5) / 2]], rtol=1e-6)


X = np.ones((4, 2, 3), np.float32)
REFUSED = [
    (lambda: bj.jacobians(3, X, X[0]), bp.ArgumentError, "int", "layer"),
    (lambda: bj.jacobians(leaky, X, X[0], X[0]), bp.ArgumentError, "function", "step(x_t, h)"),
    (lambda: bj.jacobians(leaky, X, X[0].astype(int)), bp.ShapeError, "h0", "int32"),
    (lambda: bj.jacobians(leaky, X[:, :1], X[0]), bp.ShapeError, "(4, 1, 3)", "(T, 2, ...)"),
    (lambda: bj.jacobians(lambda x, h: h[:, 1:], X, X[0]), bp.ShapeError, "(2, 2)", "h"),
    (lambda: bj.jacobians(lambda x, h: h - h.mean(0), X, X[0]), bp.PassError, "couples", "step"),
]


@pytest.mark.parametrize("call, error, value, fix", REFUSED)
def test_refused_arguments(call, error, value, fix) -> None:
    assert_refused(call, error, value, fix)
