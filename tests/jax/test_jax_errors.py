"""What `bppsa_cupy.jax` refuses, and what the messages name."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from jax_cases import assert_same, bj, draw, jax, jnp, x64  # noqa: F401

import bppsa_cupy as bp

GRU, LSTM, LRU = bj.GRU(3, 4), bj.LSTM(3, 4), bj.LRU(3, 4)
PARAMS, X, STATE = draw(GRU, 2, 5, np.float32)
LSTM_PARAMS, _, LSTM_STATE = draw(LSTM, 2, 5, np.float32)
LRU_PARAMS = LRU.init(jax.random.key(0))
WITHOUT_BIAS = {name: value for name, value in PARAMS.items() if name != "bias_hh_l0"}


def cast(tree, dtype):
    return jax.tree.map(lambda a: jnp.asarray(a, dtype), tree)


SHAPES = [
    (lambda: bj.GRU(3, 0), r"GRU got hidden_size=0"),
    (lambda: bj.GRU(3, 4, dropout=0.5), r"GRU got dropout=0.5: it takes 0.0 alone"),
    (lambda: bj.CellLayer("gru", 3, 4), r"CellLayer got cell of str: it takes a bp.Cell"),
    (lambda: GRU(cast(PARAMS, "float16"), cast(X, "float16")), r"GRU\(3, 4\) got x of float16: .*float32"),
    (lambda: GRU(cast(PARAMS, "bfloat16"), cast(X, "bfloat16")), r"x of bfloat16: .* x.astype\(jnp"),
    (lambda: GRU(PARAMS, np.ones((2, 5, 3), int)), r"got x of int32: it takes float32 or float64"),
    (lambda: GRU(cast(PARAMS, "bfloat16"), X), r"got weight_ih_l0 of bfloat16 .*with input of float32"),
    (lambda: GRU(PARAMS, X[..., :2]), r"GRU\(3, 4\) got input \(5, 2\): it takes sequences \(T, 3\)"),
    (lambda: GRU(PARAMS, X[None]), r"got x of shape \(1, 2, 5, 3\): it takes \(B, T, 3\), .*; jax.vmap"),
    (lambda: GRU(PARAMS, X[:0]), r"B must be at least 1"),
    (lambda: GRU(PARAMS, X[:, :0]), r"T must be at least 1"),
    (lambda: GRU(list(PARAMS), X), r"GRU\(3, 4\) got params of list: it takes a dict as init\("),
    (lambda: GRU(WITHOUT_BIAS, X), r"got the parameters \['weight_ih_l0', .* it takes \[.*'bias_hh_l0'\]"),
    (lambda: GRU({**PARAMS, "bias_hh_l0": X}, X), r"bias_hh_l0 of float32 and shape \(2, 5, 3\): .* \(12,\)"),
    (lambda: GRU(PARAMS, X, STATE[:, :1]), r"the state of float32 and shape \(1, 1, 4\): .*\(1, 2, 4\)"),
    (lambda: LSTM(LSTM_PARAMS, X, STATE), r"1 arrays as the state: it takes a pair of arrays \(h, c\)"),
    (lambda: GRU(PARAMS, X, lengths=[5]), r"a batch of 2 takes integers of shape \(2,\)"),
    (lambda: GRU(PARAMS, X, lengths=[5, 6]), r"sample 1 has length 6: a length is from 1 to T = 5"),
    (lambda: GRU(PARAMS, X, np.zeros((1, 2, 4), np.float16)), "a state of float16 and x of float32"),
    (lambda: LRU(LRU_PARAMS, X, STATE), r"got a state of float32 and x .* of complex64, as state"),
    (lambda: LRU(LRU_PARAMS, X[None]), r"LRU\(3, 4\) got x of shape \(1, 2, 5, 3\): it takes \(B, T, 3\)"),
    (lambda: GRU(PARAMS, X, lengths=[1.0, 2.0]), r"lengths are float64 of shape \(2,\)"),
    (lambda: jax.jit(lambda n: GRU(PARAMS, X, lengths=n))(np.ones(3, int)), r"a batch of 2 takes integers"),
]  # fmt: skip


@pytest.mark.parametrize("call, message", SHAPES, ids=[message for _, message in SHAPES])
def test_shapes_and_dtypes(call, message: str) -> None:
    with pytest.raises(bp.ShapeError, match=message):
        call()


def test_lengths_that_are_traced() -> None:
    compiled = jax.jit(lambda lengths: GRU(PARAMS, X, lengths=lengths))
    with pytest.raises(RuntimeError, match=r"ShapeError: sample 1 has length 6: a length is from 1 to T = 5"):
        jax.block_until_ready(compiled(np.array([5, 6])))
    assert compiled(np.array([5, 4]))[0].shape == (2, 5, 4)


def loss(x):
    return GRU(PARAMS, x)[0].sum()


@pytest.mark.parametrize("call", [
    lambda: jax.jvp(loss, (X,), (X,)),
    lambda: jax.jvp(jax.jit(loss), (X,), (X,)),
    lambda: jax.linearize(loss, X)[1](X),
    lambda: jax.jit(lambda x: jax.linearize(loss, x)[1](x))(X),
    lambda: jax.jacfwd(jax.checkpoint(loss))(X),
])  # fmt: skip
def test_forward_mode(call) -> None:
    with pytest.raises(bp.PassError, match=r"GRU\(3, 4\) has no forward-mode derivatives .*jax.vjp, jax.jac"):
        call()


def test_what_is_linearized_is_right_where_it_goes_back() -> None:
    value, tangents = jax.linearize(loss, X)
    assert value == loss(X)
    (gradient,) = jax.linear_transpose(tangents, X)(1.0)
    assert_same(gradient, jax.grad(loss)(X))


@pytest.mark.parametrize("call", [
    lambda: jax.grad(lambda x: jax.grad(loss)(x).sum())(X),
    lambda: jax.jit(jax.hessian(loss))(X[:1, :1]),
    lambda: jax.grad(lambda x: jax.vjp(loss, x)[1](1.0)[0].sum())(X),
])  # fmt: skip
def test_second_derivatives(call) -> None:
    with pytest.raises(bp.PassError, match=r"GRU\(3, 4\) has no second derivatives .*jax.lax.scan where"):
        call()


def test_jax_is_needed_here_alone_and_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "import bppsa_cupy\n"
        "try: import bppsa_cupy.jax\n"
        "except ImportError as error: print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    assert "bppsa_cupy.jax takes JAX 0.6.2 or later" in result.stdout
    assert "pip install -e '.[jax]'" in result.stdout
