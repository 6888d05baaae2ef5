"""What a pass is given beside its input: refused by name where it does not fit, else put in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_instance, as_output
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Context, Layer, Shape

TAKES = "arrays by name"


def checked_parameters(
    layer: Layer, dtype: Any, parameters: Mapping[str, Any], convert: Callable[[Any], Any]
) -> dict[str, Any]:
    """The layer's parameters, each as `convert` makes it an array. Raises ShapeError unless they are of the
    layer's names and shapes and of the input's dtype, float32 or float64."""
    if dtype not in (np.float32, np.float64):
        raise ShapeError(f"{layer!r} got input of {dtype}: it takes float32 or float64")
    shapes = layer.parameter_shapes()
    as_instance("forward", "parameters", parameters, Mapping, TAKES)  # type: ignore[type-abstract]
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
    as_instance("forward", "buffers", given, Mapping, TAKES)  # type: ignore[type-abstract]
    if given.keys() != initial.keys():
        raise ShapeError(f"{layer!r} got the buffers {list(given)}: it takes {list(initial)}")
    return own, {
        name: device.asarray(given[name], dtype=np.int64 if value.dtype.kind == "i" else dtype)
        for name, value in initial.items()
    }


def checked_out(device: Device, dtype: np.dtype, what: str, shape: Shape, array: Array | None) -> Array:
    """The caller's array of this shape, or a new one. Raises ShapeError."""
    if array is None:
        return device.empty(shape, dtype)
    return as_output("forward", f"out for {what}", array, device.xp, shape, dtype)


def place_states(ctx: Context, name: str, shapes: tuple[Shape, ...], dtype: np.dtype, given: Any) -> Any:
    """The caller's arrays for states, or for gradients by them, of these shapes and this dtype; new ones
    without: one array, or a tuple. Raises ShapeError."""
    parts = given if isinstance(given, (tuple, list)) else (given,) * len(shapes)
    if len(parts) != len(shapes):
        raise ShapeError(f"out has {len(parts)} arrays for states: it takes {len(shapes)}")
    arrays = []
    for number, shape in enumerate(shapes):
        part = parts[number]
        if part is None:
            part = ctx.device.empty(shape, dtype)
        else:
            checked_out(ctx.device, dtype, "a state", shape, part)
        ctx.placed[f"{name}_{number}"] = part
        arrays.append(part)
    return arrays[0] if len(arrays) == 1 else tuple(arrays)
