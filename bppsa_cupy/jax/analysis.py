"""`jacobians` of JAX's recurrent layers, and of recurrences that are written in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bppsa_cupy import functional
from bppsa_cupy.arguments import as_integer
from bppsa_cupy.errors import ArgumentError, PassError, ShapeError
from bppsa_cupy.jax.layers import OverTime, as_inputs, check_sequence
from bppsa_cupy.jax.passes import sequence_axis
from bppsa_cupy.jax.tangents import JaxFlow
from bppsa_cupy.records.records import JacobianRecords, step_records


def jacobians(
    function: OverTime | Callable[..., Any],
    given: Any,
    x: Any,
    state: Any = None,
    *,
    lengths: Any = None,
    resets: Any = None,
    steps: int | None = None,
) -> JacobianRecords:
    """Compute the transposed Jacobian of every step of a recurrent layer or of a recurrence.

    Call ``jacobians(layer, params, x)`` or ``jacobians(step, inputs, h0)``.

    Parameters
    ----------
    function : layer of bppsa_cupy.jax, or callable
        A layer, or a step function ``h_next = step(x_t, h)`` that JAX can trace.
    given : dict or array
        For a layer, its params. For a step function, the inputs of all time steps, (T, B, ...), or (T, ...)
        if h0 has no batch. With None, the step is ``step(h)``.
    x : array or pytree
        For a layer, its input, (B, T, F). For a step function, the initial state h0, (B, S) or (S,), or a
        pytree of such arrays, float32 or float64.
    state, lengths, resets : optional
        Initial state, valid steps per sample and marked steps, as in the call of the layer. Only for layers.
        The Jacobian of a step with a reset is 0.
    steps : int, optional
        The number of time steps if a step function has no inputs.

    Returns
    -------
    JacobianRecords
        One record per time step (for a layer also per inner layer and direction), with values on the host.

    Raises
    ------
    ShapeError
        If an array has the wrong shape or dtype.
    ArgumentError
        If `function` is neither a layer nor a step function.
    PassError
        If a step function couples the samples of a batch.

    Examples
    --------
    >>> import jax.numpy as jnp, bppsa_cupy.jax as bj
    >>> records = bj.jacobians(lambda x, h: jnp.tanh(x + h / 2), jnp.zeros((3, 2)), jnp.zeros(2))
    >>> records.dense()[0, 0].tolist()
    [[0.5, 0.0], [0.0, 0.5]]
    """
    if isinstance(function, OverTime):
        return _of_layer(function, given, x, state, lengths, resets)
    if not callable(function) or any(option is not None for option in (state, lengths, resets)):
        raise ArgumentError(
            f"jacobians got a {type(function).__name__}: pass a layer of bppsa_cupy.jax with params and x, "
            "or a function step(x_t, h) with sequences and the initial state"
        )
    return _of_steps(function, given, x, steps)


def _of_layer(
    function: OverTime, params: Any, x: Any, state: Any, lengths: Any, resets: Any
) -> JacobianRecords:
    layer, x = function.layer, jnp.asarray(x)
    check_sequence(layer, x)
    if x.ndim == 2:
        x = jnp.expand_dims(x, sequence_axis(layer))
        state = None if state is None else jax.tree.map(lambda part: jnp.expand_dims(part, 1), state)
        lengths = None if lengths is None else np.reshape(lengths, 1)
        resets = None if resets is None else jnp.expand_dims(resets, sequence_axis(layer))
    taken = as_inputs(layer, params, x, state, lengths)
    arrays = jax.tree.map(np.asarray, taken)
    return functional.jacobians(
        layer,
        arrays.parameters,
        arrays.x,
        lengths=arrays.bounds,
        resets=None if resets is None else np.asarray(resets),
        states=arrays.states or None,
        device="host",
    )


def _of_steps(step: Callable[..., Any], x: Any, h0: Any, steps: int | None) -> JacobianRecords:
    """Steps one after the other in one compiled scan, on a batch, as the caller would."""
    flow = JaxFlow(step, h0)
    h, total, batched, batch = flow.flat, flow.size, flow.batch is not None, flow.batch or 1
    is_autonomous = x is None
    if is_autonomous:
        x = np.zeros((as_integer("jacobians", "steps", steps, 1), batch), np.float32)
    x = jnp.asarray(x)
    if not x.ndim or not len(x) or (batched and x.shape[1:2] != (batch,)):
        takes = f"(T, {batch}, ...)" if batched else "(T, ...)"
        raise ShapeError(
            f"jacobians of a step got x of shape {x.shape} with h0 of shape {h.shape}: pass x of "
            f"shape {takes}"
        )
    name = getattr(step, "__name__", type(step).__name__)
    name = name if name.isidentifier() else "step"

    def flat_step(x_t: jax.Array, h: jax.Array) -> jax.Array:
        return flow.evaluate(None if is_autonomous else x_t, h)

    basis = jnp.eye(total, dtype=h.dtype)
    if batched:
        basis = jnp.broadcast_to(basis[:, None], (total, batch, total))

    def advance(h: jax.Array, x_t: jax.Array) -> tuple[jax.Array, jax.Array]:
        after, back = jax.vjp(partial(flat_step, x_t), h)
        return after, jax.vmap(lambda cotangent: back(cotangent)[0])(basis)

    if batch > 1:
        first = jnp.zeros_like(h).at[0].set(jnp.cos(jnp.arange(total, dtype=h.dtype)))
        _, back = jax.vjp(partial(flat_step, x[0]), h)
        if bool(back(first)[0][1:].any()):
            raise PassError(
                f"jacobians: {name} couples the samples of a batch, so there is no Jacobian per sample: "
                "pass a step that computes each sample independently, or a batch of one sample"
            )
    _, jacobians = jax.lax.scan(advance, h, x)
    values = np.asarray(jacobians).reshape(len(x), total, batch, total)
    return step_records(name, values.transpose(0, 2, 3, 1))
