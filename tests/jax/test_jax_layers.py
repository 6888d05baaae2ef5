"""`bppsa_cupy.jax`: results and gradients are those of the same cells written with jax.lax.scan."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from jax_cases import assert_same, bj, by_scan, draw, function_of, jax, jnp, loss_of, x64  # noqa: F401

import bppsa_cupy as bp
from bppsa_cupy.cells.cell import BUILT_IN

#: Beside every cell in one setting: arguments of its function, (B, T), whether samples end early, whether
#: there is a state.
SETTINGS = [
    *(
        pytest.param(
            name,
            (3, 4, 1),
            {},
            (2, 5),
            False,
            True,
            id=name,
            marks=() if name == "lstm" else pytest.mark.long,
        )
        for name in BUILT_IN
    ),
    pytest.param("gru", (3, 4, 2), {"bidirectional": True}, (3, 6), True, True, id="deep, both ways, ragged"),
    *(
        pytest.param(*setting, id=name, marks=pytest.mark.long)
        for name, setting in {
            "no bias": ("gru", (3, 6, 1), {"bias": False}, (2, 5), False, False),
            "the last output": ("lstm", (3, 4, 1), {"outputs": "last"}, (2, 5), True, True),
            "one step of one unit": ("lstm", (1, 1, 2), {}, (1, 1), False, False),
        }.items()
    ),
]


@pytest.mark.parametrize("name, sizes, options, shape, ragged, stateful", SETTINGS)
@pytest.mark.usefixtures("x64")
def test_results_and_gradients(name, sizes, options, shape, ragged, stateful) -> None:
    function = function_of(name, *sizes, **options)
    params, x, state = draw(function, *shape)
    lengths = 1 + np.arange(shape[0]) * 2 % shape[1] if ragged else None
    if not stateful:
        state = None

    def ours(params, x, state):
        results = function(params, x, state, lengths=lengths)
        return loss_of(results), results

    def theirs(params, x, state):
        results = by_scan(name, function.layer, params, x, state, lengths)
        return loss_of(results), results

    arguments = (0, 1, 2) if stateful else (0, 1)

    @jax.jit
    def both(*values):
        return [jax.value_and_grad(f, arguments, has_aux=True)(*values) for f in (ours, theirs)]

    assert_same(*both(params, x, state))


@pytest.mark.usefixtures("x64")
def test_parameters_are_those_of_pytorch() -> None:
    theirs = torch.nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True).double()
    params = {name: jnp.asarray(p.detach().numpy()) for name, p in theirs.named_parameters()}
    lstm = bj.LSTM(3, 4, 2, bidirectional=True)
    x = np.random.default_rng(0).standard_normal((2, 5, 3))
    y, state = lstm(params, x)
    expected, after = theirs(torch.tensor(x))
    for array, tensor in ((y, expected), *zip(state, after, strict=True)):
        assert array.dtype == jnp.float64
        np.testing.assert_allclose(array, tensor.detach(), atol=1e-14)


@pytest.mark.usefixtures("x64")
def test_fresh_parameters() -> None:
    function = bj.GRU(3, 64)
    many = jax.jit(jax.vmap(function.init))(jax.random.split(jax.random.key(0), 2))
    first, second = (jax.tree.map(lambda a, at=i: np.asarray(a[at]), many) for i in range(2))
    shapes = {name: array.shape for name, array in first.items()}
    assert shapes == function.layer.parameter_shapes()
    bound = 1 / 8
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_hh_l0"):
        values = first[name]
        assert values.dtype == np.float64 and 0.9 * bound < abs(values).max() <= bound
        assert abs(values.mean()) < bound / 4 and not np.array_equal(values, second[name])
    assert not np.array_equal(first["bias_ih_l0"], first["bias_hh_l0"])
    for dtype in (jnp.float32, jnp.float64):
        drawn = jax.eval_shape(lambda key, dtype=dtype: function.init(key, dtype), jax.random.key(0))
        assert all(array.dtype == dtype for array in drawn.values())


@pytest.mark.parametrize("outputs", ["all", "last"])
@pytest.mark.usefixtures("x64")
def test_layouts(outputs: str) -> None:
    options = {"outputs": outputs, "bidirectional": True}
    first, second = bj.GRU(3, 4, **options), bj.GRU(3, 4, batch_first=False, **options)
    params, x, h = draw(first, 2, 5)
    y, after = first(params, x, h, lengths=[3, 5])
    turned, same = second(params, x.swapaxes(0, 1), h, lengths=[3, 5])
    assert_same((turned.swapaxes(0, 1) if outputs == "all" else turned, same), (y, after))
    for function in (first, second):
        alone, last = function(params, x[0], h[:, 0], lengths=3)
        assert_same((alone, last), (y[0], after[:, 0]), 1e-6)


def test_functions_are_values() -> None:
    function = bj.GRU(3, 4, bidirectional=True)
    equal = (
        bj.GRU(3, 4, 1, True, True, 0.0, True),
        copy.deepcopy(function),
        pickle.loads(pickle.dumps(function)),
    )
    for other in equal:
        assert other == function and hash(other) == hash(function) and other.layer is function.layer
    assert bj.GRU(3, 5) != function and bj.LSTM(3, 4, bidirectional=True) != function
    assert repr(function) == repr(bp.GRU(3, 4, bidirectional=True))
