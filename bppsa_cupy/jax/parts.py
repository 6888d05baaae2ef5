"""What goes into a pass and comes out of it: pytrees, their shapes, which axis is the batch, and checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bppsa_cupy.arguments import as_instance
from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.functional.passes import checked_parameters, taken_shape
from bppsa_cupy.layers import MatrixRecurrent, Recurrent
from bppsa_cupy.timescan.lengths import check_lengths

DTYPES = (np.float32, np.float64)


class Inputs(NamedTuple):
    """The inputs of a forward pass.

    Attributes
    ----------
    x : object
        (B, T, F), or (T, B, F) where the layer is not batch_first.
    bounds : object
        Lengths (B,), or bools (B, T) that mark resets, or None.
    states : tuple of object
        States before the first step, (num_layers D, B, H) each; () for zeros.
    parameters : dict of str to object
        Parameters by name.
    """

    x: Any
    bounds: Any
    states: tuple[Any, ...]
    parameters: dict[str, Any]


class Results(NamedTuple):
    """The results by name: the output, the states after the last step, and the arrays kept, if any."""

    y: Any
    states: tuple[Any, ...]
    saved: dict[str, Any] | None


class Back(NamedTuple):
    """Inputs of a backward pass: those of the forward pass, the arrays that it kept, and the gradients with
    respect to its output and its last states, () for zeros."""

    inputs: Inputs
    saved: dict[str, Any]
    by_output: Any
    by_states: tuple[Any, ...]


class Derivatives(NamedTuple):
    """The gradients with respect to x, first states (() where they are zeros) and parameters; None where not
    wanted."""

    x: Any
    states: tuple[Any, ...]
    parameters: dict[str, Any] | None


@jax.tree_util.register_static
@dataclass(frozen=True)
class Wanted:
    """Results that a pass computes on request.

    They are arrays to keep, or gradients with respect to parameters and x.
    """

    saved: bool = False
    parameters: bool = False
    x: bool = False


def forward_shapes(layer: MatrixRecurrent, inputs: Inputs, wanted: Wanted) -> Results:
    """Shapes and dtypes of `Results`."""
    axis, dtype = sequence_axis(layer), inputs.x.dtype
    batch, steps = inputs.x.shape[axis], inputs.x.shape[1 - axis]

    def struct(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype)

    columns = layer.directions * layer.hidden_size
    every_step = (batch, steps, columns) if layer.batch_first else (steps, batch, columns)
    state = struct((layer.num_layers * layer.directions, batch, layer.hidden_size))
    has_resets = inputs.bounds is not None and inputs.bounds.dtype == bool
    saved = layer.kept_shapes(batch, steps, has_resets).items() if wanted.saved else None
    return Results(
        y=struct(every_step if layer.outputs == "all" else (batch, columns)),
        states=(state,) * layer.state_count,
        saved=None if saved is None else {name: struct(shape) for name, shape in saved},
    )


def backward_shapes(layer: MatrixRecurrent, back: Back, wanted: Wanted) -> Derivatives:
    """Shapes and dtypes of `Derivatives`."""

    def like(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)

    inputs = back.inputs
    return Derivatives(
        x=like(inputs.x) if wanted.x else None,
        states=like(inputs.states),
        parameters=like(inputs.parameters) if wanted.parameters else None,
    )


def named(layer: Recurrent) -> str:
    """The layer, for messages."""
    return f"{type(layer).__name__}({layer.input_size}, {layer.hidden_size})"


def sequence_axis(layer: Recurrent) -> int:
    """Which axis of sequences is the batch."""
    return 0 if layer.batch_first else 1


def batch_axes(layer: MatrixRecurrent, parts: Any) -> list[int | None]:
    """Which axis of each leaf is the batch; None for parameters and the gradients with respect to them."""
    by_step = sequence_axis(layer)
    output = by_step if layer.outputs == "all" else 0
    axis_of = {
        "x": by_step, "bounds": 0, "states": 1, "parameters": None,
        "y": output, "saved": 2, "by_output": output, "by_states": 1,
    }  # fmt: skip
    axes: list[int | None] = []
    for name, part in zip(parts._fields, parts, strict=True):
        if isinstance(part, Inputs):
            axes += batch_axes(layer, part)
        else:
            axes += [axis_of[name]] * len(jax.tree.leaves(part))
    return axes


# ---- checks, when JAX traces a call ----


def check_sequence(layer: Recurrent, x: jax.Array) -> None:
    """Raise ShapeError unless x is (B, T, F), (T, B, F) or (T, F), of a dtype that is taken."""
    if not all(isinstance(size, int) for size in x.shape):
        raise ShapeError(
            f"{named(layer)} got x with the symbolic shape {x.shape}: export a separate function for each "
            "concrete shape"
        )
    if x.dtype not in DTYPES:
        raise ShapeError(
            f"{named(layer)} got x of {x.dtype}: pass float32 or float64, for example x.astype(jnp.float32)"
        )
    if x.ndim not in (2, 3):
        axes = "(B, T" if layer.batch_first else "(T, B"
        raise ShapeError(
            f"{named(layer)} got x of shape {x.shape}: pass {axes}, {layer.input_size}), or (T, "
            f"{layer.input_size}) without a batch; use jax.vmap for further axes"
        )


def as_inputs(
    layer: Recurrent, params: Mapping[str, Any], x: jax.Array, state: Any, lengths: Any, resets: Any = None
) -> Inputs:
    """Return the inputs of the pass as JAX arrays; x has a batch. Raises ShapeError naming both sides."""
    cure = "a dict as init(key) makes it"
    as_instance(named(layer), "params", params, Mapping, cure)  # type: ignore[type-abstract]
    taken_shape(layer, x.shape, None, None)
    axis = sequence_axis(layer)
    batch, steps = x.shape[axis], x.shape[1 - axis]
    states: tuple[Any, ...] = ()
    if state is not None:
        states = layer.check_states(state, batch, x.dtype, partial(_as_state, layer, x.dtype), "the state")
    bounds = None
    if lengths is not None:
        bounds = _as_lengths(lengths, batch, steps)
    if resets is not None:
        bounds = _as_marks(layer, x.shape[:2], lengths, resets)
    return Inputs(x, bounds, states, checked_parameters(layer, x.dtype, params, jnp.asarray))


def _as_state(layer: Recurrent, dtype: Any, array: Any) -> jax.Array:
    """`array`, of a state's dtype where x is of this one: whether another one loses nothing cannot be seen of
    a traced array."""
    converted, wanted = jnp.asarray(array), layer.state_dtype(dtype)
    if converted.dtype != wanted:
        raise ShapeError(
            f"{named(layer)} got a state of {converted.dtype} with x of {dtype}: pass a state of {wanted}, "
            f"for example state.astype({wanted.name!r})"
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


def _as_marks(layer: Recurrent, shape: tuple[int, ...], lengths: Any, resets: Any) -> jax.Array:
    """`resets`, of the first two axes of x, as bools (B, T)."""
    layer.check_resets()
    marks = jnp.asarray(resets)
    if lengths is not None:
        raise ArgumentError(f"{named(layer)} got lengths and resets: pass only one of them")
    if marks.dtype != bool or marks.shape != shape:
        raise ShapeError(
            f"{named(layer)} got resets of {marks.dtype} and shape {marks.shape}: pass bools of shape {shape}"
        )
    return marks if layer.batch_first else marks.T
