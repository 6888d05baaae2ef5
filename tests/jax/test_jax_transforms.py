"""`bppsa_cupy.jax` under JAX's transformations: what is run, how often, and with which results."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest
from jax_cases import assert_same, bj, draw, jax, jnp, loss_of, x64  # noqa: F401

from bppsa_cupy.devices import get_device
from bppsa_cupy.functional.passes import pool_of

pytestmark = pytest.mark.usefixtures("x64")
GRU = bj.GRU(3, 4)
PARAMS, X, STATE = draw(GRU, 6, 5)


def loss(params, x, state=None, lengths=None):
    return loss_of(GRU(params, x, state, lengths=lengths))


def passes() -> tuple[int, int]:
    """How often the host has gone over time, forward and back."""
    launched = get_device("host").launched
    return launched["gru_forward"], launched["gru_backward"]


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch):
    """How often each has gone over time since."""
    before = passes()
    return lambda: tuple(now - then for now, then in zip(passes(), before, strict=True))


def test_jit_gives_the_same_and_takes_other_shapes() -> None:
    compiled = jax.jit(GRU)
    for batch, steps in ((6, 5), (6, 2), (1, 5), (6, 5)):
        x = X[:batch, :steps]
        assert_same(compiled(PARAMS, x), GRU(PARAMS, x))
    assert compiled._cache_size() == 3


def test_a_step_goes_over_time_once_each_way(count) -> None:
    jax.block_until_ready(jax.jit(jax.grad(loss))(PARAMS, X))
    assert count() == (1, 1)


def test_what_nobody_reads_is_not_run(count) -> None:
    def nothing(params, x):
        y, _ = GRU(params, x)
        return x.sum() + 0 * y.shape[0]

    jax.block_until_ready(jax.jit(nothing)(PARAMS, X))
    assert count() == (0, 0)


def test_samples_under_vmap_are_one_batch_each_way(count) -> None:
    lengths = jnp.array([5, 1, 3, 5, 2, 4])

    def one_by_one(params, x, state):
        return jax.vmap(partial(loss, params))(x, jnp.swapaxes(state, 0, 1), lengths).sum()

    actual = jax.jit(jax.grad(one_by_one, (0, 1, 2)))(PARAMS, X, STATE)
    assert count() == (1, 1)
    assert_same(actual, jax.grad(loss, (0, 1, 2))(PARAMS, X, STATE, lengths))


@pytest.mark.parametrize("batch_first", [True, False])
def test_any_axis_under_vmap_and_vmap_inside_of_vmap(batch_first: bool) -> None:
    lstm = bj.LSTM(3, 4, batch_first=batch_first)
    params, _, (h, c) = draw(lstm, 2, 5)
    x = np.random.default_rng(1).standard_normal((2, 5, 3, 7, 8) if batch_first else (5, 2, 3, 7, 8))

    def function(x, h, c):
        return lstm(params, x, (h, c))

    inner = jax.vmap(function, (3, None, 0), 1)
    actual = jax.jit(jax.vmap(inner, (4, 0, None), 2))(
        x, np.stack([h * i for i in range(8)]), np.stack([c] * 7)
    )
    for i in (0, 6):
        for j in (0, 7):
            expected = function(x[..., i, j], h * j, c)
            assert_same(jax.tree.map(lambda a, at=(i, j): a[:, at[0], at[1]], actual), expected)


def test_gradients_of_each_sample() -> None:
    gradients = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(PARAMS, X)
    for index in (0, 5):
        expected = jax.grad(loss)(PARAMS, X[index])
        assert_same(jax.tree.map(lambda a, at=index: a[at], gradients), expected)


def test_no_samples_under_vmap() -> None:
    none, lengths = np.zeros((0, 2, 5, 3)), np.zeros((0, 2), int)
    y, state = jax.vmap(lambda x, length: GRU(PARAMS, x, lengths=length))(none, lengths)
    assert y.shape == (0, 2, 5, 4) and state.shape == (0, 1, 2, 4) and y.dtype == state.dtype == X.dtype
    by_params, by_x = jax.jit(jax.vmap(jax.grad(loss, (0, 1)), (None, 0)))(PARAMS, none)
    assert by_x.shape == none.shape
    assert jax.tree.map(np.shape, by_params) == jax.tree.map(lambda p: (0, *p.shape), PARAMS)
    total = jax.grad(lambda params: jax.vmap(partial(loss, params))(none).sum())(PARAMS)
    assert not any(np.any(gradient) for gradient in jax.tree.leaves(total))


def test_gradients_of_each_sample_of_a_layer_without_biases() -> None:
    rnn = bj.RNN(1, 1, bias=False)
    params = {"weight_ih_l0": jnp.ones((1, 1)), "weight_hh_l0": jnp.ones((1, 1))}
    gradients = jax.vmap(jax.grad(lambda params, x: rnn(params, x)[0].sum()), (None, 0))(
        params, jnp.ones((2, 1, 1, 1))
    )
    assert_same(gradients["weight_ih_l0"], jnp.full((2, 1, 1), 1 - jnp.tanh(1.0) ** 2))
    assert_same(gradients["weight_hh_l0"], jnp.zeros((2, 1, 1)))


def test_jacobians_in_reverse_mode() -> None:
    x = X[0, :2]
    jacobian = np.asarray(jax.jit(jax.jacrev(lambda x: GRU(PARAMS, x)[0]))(x))
    assert jacobian.shape == (2, 4, 2, 3) and not jacobian[0, :, 1].any()
    gradient = jax.jit(jax.grad(lambda x, weights: (weights * GRU(PARAMS, x)[0]).sum()))
    for index, weights in enumerate(np.eye(8)):
        assert_same(jacobian.reshape(8, 2, 3)[index], gradient(x, weights.reshape(2, 4)))


def test_passes_alive_at_once_and_passes_never_gone_back_through() -> None:
    function = bj.GRU(3, 4, bias=False)
    params, x, _ = draw(function, 6, 5)
    other = jax.tree.map(lambda p: -p, params)

    def own_loss(params):
        return loss_of(function(params, x))

    (_, first), (_, second) = (jax.vjp(own_loss, each) for each in (params, other))
    jax.vjp(own_loss, params)
    pool = pool_of(function.layer)
    assert pool._used_bytes == 0 and len(pool._free) == 1
    for _ in range(2):
        assert_same(second(1.0), (jax.grad(own_loss)(other),))
        assert_same(first(1.0), (jax.grad(own_loss)(params),))


def test_gradients_that_nobody_asks_for(count) -> None:
    by_x = jax.grad(loss, 1)(PARAMS, X)
    by_state = jax.grad(lambda state: GRU(PARAMS, X, state)[1].sum())(STATE)
    assert count() == (2, 2)
    assert_same(by_x, jax.grad(loss, (0, 1))(PARAMS, X)[1])
    both = jax.grad(lambda params, x, state: GRU(params, x, state)[1].sum(), (0, 1, 2))(PARAMS, X, STATE)
    assert_same(by_state, both[2])
    text = str(jax.make_jaxpr(jax.grad(loss))(PARAMS, X))
    assert "wanted=Wanted(saved=False, parameters=True, x=False)" in text


def test_a_layer_inside_of_a_scan() -> None:
    def in_parts(params, x):
        def part(state, x):
            y, state = GRU(params, x, state)
            return state, y

        state, ys = jax.lax.scan(part, jnp.zeros((1, 6, 4)), jnp.stack([x[:, :2], x[:, 2:4]]))
        return loss_of((jnp.concatenate(list(ys), 1), state))

    actual = jax.jit(jax.value_and_grad(in_parts, (0, 1)))(PARAMS, X[:, :4])
    assert_same(actual, jax.value_and_grad(loss, (0, 1))(PARAMS, X[:, :4]))


def test_threads_with_parameters_of_their_own() -> None:
    compiled, results = jax.jit(jax.grad(loss)), {}
    parameters = [jax.tree.map(lambda p, by=i: by * p, PARAMS) for i in range(4)]
    expected = [compiled(params, X) for params in parameters]

    def work(number: int) -> None:
        results[number] = [compiled(parameters[number], X) for _ in range(10)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for number, gradients in enumerate(expected):
        for again in results[number]:
            assert_same(again, gradients)
