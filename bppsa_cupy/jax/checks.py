"""What a function is given: refused by name where it does not fit, when JAX traces it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bppsa_cupy.arguments import as_instance
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.functional.layout import checked_parameters, taken_shape
from bppsa_cupy.jax.parts import Given, named, sequence_axis
from bppsa_cupy.layers import Recurrent
from bppsa_cupy.timescan.lengths import check_lengths

DTYPES = (np.float32, np.float64)


def check_sequence(layer: Recurrent, x: jax.Array) -> None:
    """Raise ShapeError unless x is (B, T, F), (T, B, F) or (T, F), of a dtype that is taken."""
    if not all(isinstance(size, int) for size in x.shape):
        raise ShapeError(
            f"{named(layer)} got x of shape {x.shape}: it takes sizes that are numbers; export a function "
            "for each size that is needed"
        )
    if x.dtype not in DTYPES:
        raise ShapeError(
            f"{named(layer)} got x of {x.dtype}: it takes float32 or float64, as x.astype(jnp.float32)"
        )
    if x.ndim not in (2, 3):
        axes = "(B, T" if layer.batch_first else "(T, B"
        raise ShapeError(
            f"{named(layer)} got x of shape {x.shape}: it takes {axes}, {layer.input_size}), or without a "
            f"batch (T, {layer.input_size}); jax.vmap takes further axes"
        )


def as_given(layer: Recurrent, params: Mapping[str, Any], x: jax.Array, state: Any, lengths: Any) -> Given:
    """What the pass is given, as arrays of JAX's; x has a batch. Raises ShapeError naming both sides."""
    what = "a dict as init(key) makes it"
    as_instance(named(layer), "params", params, Mapping, what)  # type: ignore[type-abstract]
    taken_shape(layer, x.shape, None, None)
    axis = sequence_axis(layer)
    batch, steps = x.shape[axis], x.shape[1 - axis]
    states: tuple[Any, ...] = ()
    if state is not None:
        states = layer.check_states(state, batch, x.dtype, partial(_as_state, layer, x.dtype), "the state")
    if lengths is not None:
        lengths = _as_lengths(lengths, batch, steps)
    return Given(x, lengths, states, checked_parameters(layer, x.dtype, params, jnp.asarray))


def _as_state(layer: Recurrent, dtype: Any, array: Any) -> jax.Array:
    """`array`, of a state's dtype where x is of this one: whether another one loses nothing cannot be seen of
    a traced array."""
    converted, wanted = jnp.asarray(array), layer.state_dtype(dtype)
    if converted.dtype != wanted:
        raise ShapeError(
            f"{named(layer)} got a state of {converted.dtype} and x of {dtype}: it takes a state of "
            f"{wanted}, as state.astype({wanted.name!r})"
        )
    return converted


def _as_lengths(lengths: Any, batch: int, steps: int) -> jax.Array:
    """`lengths` (B,); of a traced array shape and dtype are looked at alone."""
    if isinstance(lengths, jax.core.Tracer):
        check_lengths(np.ones(lengths.shape, lengths.dtype), batch, steps)
    else:
        lengths = np.asarray(lengths)
        check_lengths(lengths, batch, steps)
    return jnp.asarray(lengths)
