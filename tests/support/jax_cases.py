"""Every recurrent cell written with jax.lax.scan, the oracle of bppsa_cupy.jax; skips without JAX."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cell_formulas import formulas, spaces

import bppsa_cupy as bp

jax: Any = pytest.importorskip("jax", reason="bppsa_cupy.jax takes JAX, of the extra jax")
jnp: Any = importlib.import_module("jax.numpy")
bj: Any = importlib.import_module("bppsa_cupy.jax")
jax.config.update("jax_disable_most_optimizations", True)  # of small programs, which are run once


@pytest.fixture
def x64() -> Iterator[None]:
    """JAX in float64."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


FORMULAS = formulas(jax.nn.sigmoid, jnp.tanh, jax.nn.relu)


def step_of(name: str, x: Any, u: Any, *values: Any) -> tuple[Any, ...]:
    """New states from the gates' x and u (G, B, H), the states (B, H) and the unit parameters (H,)."""
    cell = bp.Cell.built_in(name)
    states, parameters = values[: len(cell.states)], values[len(cell.states) :]
    return tuple(FORMULAS[name](*spaces(cell, x, u, states, parameters)))


def function_of(name: str, *arguments: Any, **options: Any) -> Any:
    """The function of a cell."""
    if name in ("gru", "lstm"):
        return getattr(bj, name.upper())(*arguments, **options)
    if name.startswith("rnn_"):
        return bj.RNN(*arguments, nonlinearity=name.removeprefix("rnn_"), **options)
    return bj.CellLayer(bp.Cell.built_in(name), *arguments, **options)


def by_scan(
    name: str, layer: bp.Recurrent, params: Any, x: Any, state: Any = None, lengths: Any = None
) -> Any:
    """What the layer's function gives for sequences (B, T, F), by jax.lax.scan over the steps."""
    batch, steps, _ = x.shape
    rows, H = layer.num_layers * layer.directions, layer.hidden_size
    count = layer.cell.states
    if state is None:
        state = (jnp.zeros((rows, batch, H), x.dtype),) * count
    state = state if isinstance(state, tuple) else (state,)
    live = jnp.arange(steps)[:, None, None] < (
        jnp.full(batch, steps) if lengths is None else jnp.asarray(lengths)
    ).reshape(1, -1, 1)
    values, finals, row = x.swapaxes(0, 1), [], 0
    for inner in range(layer.num_layers):
        outputs = []
        for direction in range(layer.directions):
            end = f"_l{inner}" + ("_reverse" if direction else "")
            units = tuple(params[parameter + end] for parameter in layer.unit_parameters)
            initial = tuple(part[row] for part in state)
            final, out = one_direction(name, layer, params, end, units, values, initial, live, direction > 0)
            finals.append(final)
            outputs.append(out)
            row += 1
        values = jnp.concatenate(outputs, -1)
    last = tuple(jnp.stack(parts) for parts in zip(*finals, strict=True))
    if layer.outputs == "last":
        y = jnp.concatenate(list(last[0][-layer.directions :]), -1)
    else:
        y = values.swapaxes(0, 1)
    return y, last[0] if count == 1 else last


def one_direction(
    name: str, layer: bp.Recurrent, params: Any, end: str, units: Any, values: Any, initial: Any, live: Any,
    reverse: bool,
) -> Any:  # fmt: skip
    H, G = layer.hidden_size, layer.cell.gates
    projected = values @ params["weight_ih" + end].T + params.get("bias_ih" + end, 0.0)

    def step(states: Any, inputs: Any) -> Any:
        row, is_live = inputs
        u = (states[0] @ params["weight_hh" + end].T).reshape(-1, G, H).swapaxes(0, 1)
        u = u + jnp.asarray(params.get("bias_hh" + end, jnp.zeros(G * H))).reshape(G, 1, H)
        new = step_of(name, row.reshape(-1, G, H).swapaxes(0, 1), u, *states, *units)
        after = tuple(jnp.where(is_live, n, s) for n, s in zip(new, states, strict=True))
        return after, jnp.where(is_live, after[0], 0.0)

    return jax.lax.scan(step, initial, (projected, live), reverse=reverse)


def draw(function: Any, batch: int, steps: int, dtype: Any = np.float64) -> Any:
    """Parameters twice as large as usual, sequences (B, T, F) or (T, B, F), and a state."""
    rng, layer = np.random.default_rng(0), function.layer
    params = {name: 2 * value.astype(dtype) for name, value in layer.initialize(rng).items()}
    x = rng.standard_normal(
        (batch, steps, layer.input_size) if layer.batch_first else (steps, batch, layer.input_size)
    )
    rows = (layer.cell.states, layer.num_layers * layer.directions, batch, layer.hidden_size)
    state = tuple(rng.standard_normal(rows).astype(dtype))
    return params, x.astype(dtype), state if layer.cell.states > 1 else state[0]


def loss_of(results: Any) -> Any:
    """One number of output and state, each of whose elements counts."""
    return sum((part * jnp.cos(part + i)).sum() for i, part in enumerate(jax.tree.leaves(results)))


def assert_same(actual: Any, expected: Any, tolerance: float = 1e-10) -> None:
    """Trees of equal shapes and dtypes, leaves within the tolerance, relative to the largest."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, b in zip(*(map(np.asarray, jax.tree.leaves(tree)) for tree in (actual, expected)), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert abs(a - b).max() <= tolerance * max(1.0, abs(b).max())
