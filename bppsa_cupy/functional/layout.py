"""One layer's pass in the caller's layout: what is given is checked, turned into the engine's, and run."""

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
    """The layer's output for x, of a shape it takes and C-contiguous, in its layout: a view of a buffer of
    the context's, which is filled. Arguments and errors are those of `functional.forward`."""
    if not isinstance(ctx, RecurrentContext) or not isinstance(layer, Recurrent):
        ctx.input_shape = x.shape[1:]
        return layer.forward(ctx, x)
    return turned(layer, layer.forward(ctx, enter(layer, ctx, x, lengths, states)))


def enter(layer: Recurrent, ctx: RecurrentContext, x: Array, lengths: Any, states: Any) -> Array:
    """Sequences as the engine takes them, with what comes beside them in the context."""
    x = turned(layer, x)
    batch, steps = x.shape[:2]
    ctx.input_shape = x.shape[1:]
    ctx.initial = ctx.final_gradient = ctx.lengths = None
    if states is not None:
        ctx.initial = layer.check_states(states, batch, ctx.dtype, ctx.device.asarray, "the state")
    if lengths is not None:
        ctx.lengths = take_lengths(ctx.device, lengths, batch, steps)
    return for_engine(ctx, x)


def turned(layer: Layer, array: Array) -> Array:
    """Sequences of the layer's layout as (B, T, columns), and the other way round: a view. Other arrays as
    they are."""
    if array.ndim != 3 or not isinstance(layer, Recurrent) or layer.batch_first:
        return array
    return array.swapaxes(0, 1)


def for_engine(ctx: Context, array: Array) -> Array:
    """(B, T, columns) as the engine takes it, which must be C-contiguous where samples end early."""
    return array if ctx.lengths is None else ctx.device.xp.ascontiguousarray(array)


def may_be_placed(ctx: Context, array: Array) -> bool:
    """Whether the engine can write (B, T, columns) where `array` lies."""
    return ctx.lengths is None or bool(array.flags.c_contiguous)
