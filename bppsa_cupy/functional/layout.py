"""One layer's pass in the caller's layout: arguments are checked, turned into the engine's, and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.arguments import as_instance
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Context, Layer, Recurrent, Shape
from bppsa_cupy.layers.recurrent import RecurrentContext
from bppsa_cupy.timescan.lengths import take_lengths


class Shapes(NamedTuple):
    """What a pass of one layer takes and gives.

    batch    samples
    output   shape of the output, in the caller's layout
    states   of each state, (num_layers D, B, H); empty of a layer that is not recurrent
    by_time, output_by_time  whether input and output are (T, B, columns)
    """

    batch: int
    output: Shape
    states: tuple[Shape, ...]
    by_time: bool
    output_by_time: bool


def shapes_of(layer: Layer, shape: Shape) -> Shapes:
    """Those of a pass over input of this shape. Raises ShapeError where the layer does not take it."""
    batch, *sizes = taken_shape(layer, shape, None, None)
    output = batch, *layer.output_shape(tuple(sizes))
    if not isinstance(layer, Recurrent):
        return Shapes(batch, output, (), False, False)
    state = layer.num_layers * layer.directions, batch, layer.hidden_size
    by_time = is_by_time(layer)
    output_by_time = by_time and len(output) == 3
    if output_by_time:
        output = output[1], output[0], output[2]
    return Shapes(batch, output, (state,) * layer.state_count, by_time, output_by_time)


def taken_shape(layer: Layer, shape: Shape, lengths: Any, states: Any) -> Shape:
    """The shape of an input in the engine's layout, (B, ...), where the layer takes it, and what comes beside
    it. Raises ShapeError."""
    check_beside(layer, lengths, states)
    if isinstance(layer, Recurrent):
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


def check_beside(layer: Layer, lengths: Any, states: Any) -> None:
    """Raise ShapeError where lengths or states were given for a layer that takes none."""
    if (states is not None or lengths is not None) and not isinstance(layer, Recurrent):
        raise ShapeError(f"{layer!r} got a state or lengths: recurrent layers alone take them")


def is_by_time(layer: Layer) -> bool:
    """Whether the layer's sequences are (T, B, columns)."""
    return isinstance(layer, Recurrent) and not layer.batch_first


def go_forward(layer: Layer, ctx: Context, x: Array, lengths: Any, states: Any) -> Array:
    """The layer's output for x, of a shape it takes and C-contiguous, in its layout: a view of a buffer of
    the context's, which is filled. Arguments and errors are those of `functional.forward`."""
    by_time = is_by_time(layer)
    y = forward_whole(layer, ctx, enter(layer, ctx, x, lengths, states, by_time))
    return y.swapaxes(0, 1) if by_time and y.ndim == 3 else y


def forward_whole(layer: Layer, ctx: Context, x: Array) -> Array:
    """`layer.forward`; where that fails, the layer's buffers are as they were."""
    buffers = list(ctx.module_buffers.values()) if ctx.training else []
    before = [array.copy() for array in buffers]
    try:
        return layer.forward(ctx, x)
    except BaseException:
        for array, values in zip(buffers, before, strict=True):
            array[...] = values
        raise


def enter(layer: Layer, ctx: Context, x: Array, lengths: Any, states: Any, by_time: bool) -> Array:
    """An input of the layer's layout, which may be `by_time`, as its `forward` takes it, with what comes
    beside it in the context."""
    if by_time:
        x = x.swapaxes(0, 1)
    ctx.input_shape, ctx.lengths = x.shape[1:], None
    if isinstance(ctx, RecurrentContext):
        ctx.initial = ctx.final_gradient = None
        if states is not None:
            assert isinstance(layer, Recurrent)
            ctx.initial = layer.check_states(states, len(x), ctx.dtype, ctx.device.asarray, "the state")
        if lengths is not None:
            ctx.lengths = take_lengths(ctx.device, lengths, *x.shape[:2])
            x = ctx.device.xp.ascontiguousarray(x)  # as the engine takes samples that end early
    return x


def put(device: Device, result: Array, wanted: Array) -> None:
    """Copy what a layer gave to where it is wanted, unless it was written there."""
    if result is not wanted and not device.xp.may_share_memory(result, wanted):
        wanted[...] = result


def checked_parameters(
    layer: Layer, dtype: Any, parameters: Mapping[str, Any], convert: Callable[[Any], Any]
) -> dict[str, Any]:
    """The layer's parameters, each as `convert` makes it an array. Raises ShapeError unless they are of the
    layer's names and shapes and of the input's dtype, float32 or float64."""
    if dtype not in (np.float32, np.float64):
        raise ShapeError(f"{layer!r} got input of {dtype}: it takes float32 or float64")
    shapes = layer.parameter_shapes()
    as_instance("forward", "parameters", parameters, Mapping, "arrays by name")  # type: ignore[type-abstract]
    if parameters.keys() != shapes.keys():
        raise ShapeError(f"{layer!r} got the parameters {list(parameters)}: it takes {list(shapes)}")
    own = {name: convert(parameters[name]) for name in shapes}
    for name, array in own.items():
        if tuple(array.shape) != shapes[name] or array.dtype != dtype:
            raise ShapeError(
                f"{layer!r} got {name} of {array.dtype} and shape {tuple(array.shape)}: with input of "
                f"{dtype} it takes {dtype} of shape {shapes[name]}"
            )
    return own


def checked_arrays(
    layer: Layer,
    device: Device,
    dtype: np.dtype,
    parameters: Mapping[str, Any],
    buffers: Mapping[str, Any] | None,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Parameters and buffers on the device. Raises ShapeError."""
    own = checked_parameters(layer, dtype, parameters, device.asarray)
    initial = layer.initial_buffers()
    given = initial if buffers is None else buffers
    as_instance("forward", "buffers", given, Mapping, "arrays by name")  # type: ignore[type-abstract]
    if given.keys() != initial.keys():
        raise ShapeError(f"{layer!r} got the buffers {list(given)}: it takes {list(initial)}")
    return own, {
        name: device.asarray(given[name], dtype=np.int64 if value.dtype.kind == "i" else dtype)
        for name, value in initial.items()
    }
