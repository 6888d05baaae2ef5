"""What `bppsa_cupy.jax` refuses, and what the messages name."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from jax_cases import assert_same, bj, draw, jax, jnp, x64  # noqa: F401
from refusals import assert_refused

import bppsa_cupy as bp

GRU, LSTM = bj.GRU(3, 4), bj.LSTM(3, 4)
PARAMS, X, STATE = draw(GRU, 2, 5, np.float32)
LSTM_PARAMS, _, LSTM_STATE = draw(LSTM, 2, 5, np.float32)
#: Of the passes, which run in float64, as those of other tests do.
WEIGHTS, INPUT, _ = draw(GRU, 2, 5)
WITHOUT_BIAS = {name: value for name, value in PARAMS.items() if name != "bias_hh_l0"}


def scan(**changed):
    zeros = np.zeros((2, 5, 3), np.float32)
    return bj.linear_scan(**{"a": zeros, "b": zeros, **changed})


def cast(tree, dtype):
    return jax.tree.map(lambda a: jnp.asarray(a, dtype), tree)


REFUSED = [
    (lambda: bj.GRU(3, 0), "GRU", "hidden_size=0"),
    (lambda: bj.GRU(3, 4, dropout=0.5), "dropout=0.5", "0.0"),
    (lambda: bj.CellLayer("gru", 3, 4), "str", "bp.Cell"),
    (lambda: GRU(cast(PARAMS, "float16"), cast(X, "float16")), "float16", "float32"),
    (lambda: GRU(PARAMS, np.ones((2, 5, 3), int)), "int32", "float32 or float64"),
    (lambda: GRU(cast(PARAMS, "bfloat16"), X), "bfloat16", "float32"),
    (lambda: GRU(PARAMS, X[..., :2]), "(5, 2)", "(T, 3)"),
    (lambda: GRU(PARAMS, X[None]), "(1, 2, 5, 3)", "jax.vmap"),
    (lambda: GRU(PARAMS, X[:0]), "(0, 5, 3)", "at least one sample"),
    (lambda: GRU(PARAMS, X[:, :0]), "(0, 3)", "at least one time step"),
    (lambda: GRU(list(PARAMS), X), "list", "dict"),
    (lambda: GRU(WITHOUT_BIAS, X), "parameters", "'bias_hh_l0'"),
    (lambda: GRU({**PARAMS, "bias_hh_l0": X}, X), "(2, 5, 3)", "(12,)"),
    (lambda: GRU(PARAMS, X, STATE[:, :1]), "(1, 1, 4)", "(1, 2, 4)"),
    (lambda: LSTM(LSTM_PARAMS, X, STATE), "1 arrays", "(h, c)"),
    (lambda: GRU(PARAMS, X, lengths=[5]), "(2,)", "one per sample"),
    (lambda: GRU(PARAMS, X, lengths=[5, 6]), "length 6", "T = 5"),
    (lambda: GRU(PARAMS, X, lengths=[1.0, 2.0]), "float64", "(2,)"),
    (lambda: GRU(PARAMS, X, resets=X[..., 0]), "float32", "bools"),
    (lambda: GRU(PARAMS, X, lengths=[5, 5], resets=X[..., 0] > 0), "lengths", "resets"),
    (lambda: scan(b=np.zeros((5, 3))), "(5, 3)", "b"),
    (lambda: scan(a=np.zeros((2, 4, 3), np.float32)), "float32", "5 or 1"),
    (lambda: scan(h0=np.zeros(3, np.float32)), "h0", "(2, 3)"),
    (lambda: scan(lengths=np.array([6, 1])), "length 6", "5"),
    (lambda: scan(resets=np.zeros(5)), "resets", "bools"),
]  # fmt: skip


@pytest.mark.parametrize("call, value, fix", REFUSED)
def test_refused_arguments(call, value, fix) -> None:
    assert_refused(call, (bp.ArgumentError, bp.ShapeError), value, fix)


@pytest.mark.usefixtures("x64")
def test_lengths_that_are_traced() -> None:
    compiled = jax.jit(lambda lengths: GRU(WEIGHTS, INPUT, lengths=lengths))
    with pytest.raises(
        RuntimeError, match=r"ShapeError: sample 1 has length 6: pass lengths from 1 to T = 5"
    ):
        jax.block_until_ready(compiled(np.array([5, 6])))
    assert compiled(np.array([5, 4]))[0].shape == (2, 5, 4)


def loss(x):
    return GRU(WEIGHTS, x)[0].sum()


@pytest.mark.parametrize("call", [
    lambda: jax.jvp(jax.jit(loss), (INPUT,), (INPUT,)),
    lambda: jax.linearize(loss, INPUT)[1](INPUT),
    lambda: jax.jacfwd(jax.checkpoint(loss))(INPUT),
])  # fmt: skip
@pytest.mark.usefixtures("x64")
def test_forward_mode(call) -> None:
    with pytest.raises(TypeError, match="forward-mode"):
        call()


@pytest.mark.usefixtures("x64")
def test_what_is_linearized_is_right_where_it_goes_back() -> None:
    value, tangents = jax.linearize(loss, INPUT)
    assert value == loss(INPUT)
    (gradient,) = jax.linear_transpose(tangents, INPUT)(1.0)
    assert_same(gradient, jax.grad(loss)(INPUT))


@pytest.mark.parametrize("call", [
    lambda: jax.grad(lambda x: jax.grad(loss)(x).sum())(INPUT),
    lambda: jax.jit(jax.hessian(loss))(INPUT[:1, :1]),
    lambda: jax.grad(lambda x: jax.vjp(loss, x)[1](1.0)[0].sum())(INPUT),
])  # fmt: skip
@pytest.mark.usefixtures("x64")
def test_second_derivatives(call) -> None:
    assert_refused(call, bp.PassError, "second derivatives", "jax.lax.scan")


def test_jax_is_needed_here_alone_and_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['jax'] = None\n"
        "import bppsa_cupy\n"
        "try: import bppsa_cupy.jax\n"
        "except ImportError as error: print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    assert "'.[jax]'" in result.stdout
