"""One layer's pass in the caller's layout: what is given is checked, put in the engine's order, and run."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Context, Layer, Recurrent, Shape
from bppsa_cupy.layers.recurrent_context import RecurrentContext
from bppsa_cupy.timescan.lengths import take_lengths


def taken_shape(layer: Layer, shape: Shape, lengths: Any, states: Any) -> Shape:
    """The shape of an input in the engine's layout, (B, ...), where the layer takes it, and what comes beside
    it. Raises ShapeError."""
    if not isinstance(layer, Recurrent):
        if states is not None or lengths is not None:
            raise ShapeError(f"{layer!r} got a state or lengths: recurrent layers alone take them")
    else:
        if len(shape) == 2 and shape[0]:
            axes, place = ("(B, T, ", "None") if layer.batch_first else ("(T, B, ", ":, None")
            raise ShapeError(
                f"{layer!r} got input of shape {tuple(shape)}, which lacks the batch: it takes "
                f"{axes}{layer.input_size}); x[{place}] is a batch of one"
            )
        if len(shape) == 3 and not layer.batch_first:
            shape = shape[1], shape[0], shape[2]
    if not shape or not shape[0]:
        raise ShapeError(f"{layer!r} got input of shape {tuple(shape)}: B must be at least 1")
    layer.output_shape(tuple(shape[1:]))
    return shape


def go_forward(layer: Layer, ctx: Context, x: Array, lengths: Any, states: Any) -> Array:
    """The layer's output for x, of a shape it takes, in its layout: a view of a buffer of the context's,
    which is filled. Arguments and errors are those of `functional.forward`."""
    if not isinstance(layer, Recurrent):
        ctx.input_shape = x.shape[1:]
        return layer.forward(ctx, x)
    assert isinstance(ctx, RecurrentContext)
    x = by_samples(layer, ctx, "input_by_samples", x)
    batch, steps = x.shape[:2]
    ctx.input_shape = x.shape[1:]
    ctx.initial = ctx.final_gradient = ctx.lengths = None
    if states is not None:
        ctx.initial = layer.check_states(states, batch, ctx.dtype, ctx.device, "the state")
    if lengths is not None:
        ctx.lengths = take_lengths(ctx.device, lengths, batch, steps)
    return as_called(layer, layer.forward(ctx, x))


def is_turned(layer: Layer, array_shape: Shape) -> bool:
    """Whether an array of sequences has other memory in the layer's layout than in the engine's, which is
    (B, T, columns)."""
    if not isinstance(layer, Recurrent) or layer.batch_first or len(array_shape) != 3:
        return False
    return array_shape[0] != 1 and array_shape[1] != 1


def by_samples(layer: Layer, ctx: Context, name: str, array: Array) -> Array:
    """Sequences of the layer's layout as (B, T, columns), C-contiguous: the array where it is one, else a
    buffer `name`; other arrays as they are."""
    if not isinstance(layer, Recurrent) or layer.batch_first or array.ndim != 3:
        return array
    turned = array.swapaxes(0, 1)
    if not is_turned(layer, array.shape):
        return turned
    buffer = ctx.buffer(name, turned.shape)
    buffer[...] = turned
    return buffer


def as_called(layer: Layer, array: Array) -> Array:
    """(B, T, columns) in the layer's layout, a view; other arrays as they are."""
    if not isinstance(layer, Recurrent) or layer.batch_first or array.ndim != 3:
        return array
    return array.swapaxes(0, 1)
