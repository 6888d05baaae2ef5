"""Passes of the engine on memory that JAX hands over: pytrees of inputs and results, and the callbacks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bppsa_cupy.devices import Array, Device, get_device
from bppsa_cupy.functional import Gradients, Saved
from bppsa_cupy.functional.passes import begin, keep, resume, run_forward, shapes_of
from bppsa_cupy.functional.passes import go_back as back_through
from bppsa_cupy.layers import MatrixRecurrent, Recurrent
from bppsa_cupy.timescan.lengths import check_lengths

#: DLPack's number of the host's memory.
HOST = 1
#: In place of the addresses of parameters: those of a context's own arrays.
OWN = "own"


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
    shapes, dtype = shapes_of(layer, inputs.x.shape), inputs.x.dtype
    saved = None
    if wanted.saved:
        steps = inputs.x.shape[1 - sequence_axis(layer)]
        has_resets = inputs.bounds is not None and inputs.bounds.dtype == bool
        kept = layer.kept_shapes(shapes.batch, steps, has_resets).items()
        saved = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in kept}
    states = tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes.states)
    return Results(jax.ShapeDtypeStruct(shapes.output, dtype), states, saved)


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


def as_lengths(lengths: Any, batch: int, steps: int) -> jax.Array:
    """`lengths` (B,) as a JAX array, checked. Of a traced array, only shape and dtype are checked."""
    if isinstance(lengths, jax.core.Tracer):
        check_lengths(np.ones(lengths.shape, lengths.dtype), batch, max(steps, 1))
    else:
        lengths = np.asarray(lengths)
        check_lengths(lengths, batch, steps)
    return jnp.asarray(lengths)


# ---- callbacks ----


def go_forward(layer: MatrixRecurrent, wanted: Wanted, execution: Any, out: Results, inputs: Inputs) -> None:
    """Fill `out`. Arguments after `wanted` are the callback's: trees of `Buffer`s."""
    device, on_stream = where(execution, inputs.x)
    with on_stream:
        arrays: Inputs = as_arrays(device, inputs)
        results: Results = as_arrays(device, out)
        saved = begun(layer, device, arrays, wanted.saved)
        run_forward(saved, arrays.x, arrays.bounds, arrays.states or None, results.y, results.states)
        if results.saved is not None:
            keep(saved, results.saved)


def go_back(layer: MatrixRecurrent, wanted: Wanted, execution: Any, out: Derivatives, back: Back) -> None:
    """Likewise."""
    device, on_stream = where(execution, back.by_output)
    with on_stream:
        arrays: Back = as_arrays(device, back)
        gradients: Derivatives = as_arrays(device, out)
        inputs = arrays.inputs
        saved = begun(layer, device, inputs, True)
        resume(saved, inputs.x, inputs.bounds, inputs.states or None, arrays.saved)
        into = Gradients(gradients.parameters or {}, gradients.x, gradients.states or None)
        back_through(
            saved, arrays.by_output, arrays.by_states or None, wanted.parameters, wanted.x, True, out=into
        )


def begun(layer: MatrixRecurrent, device: Device, inputs: Inputs, keep: bool) -> Saved:
    """A pass of the layer on copies of the parameters: its launches are bound to arrays, and those of JAX's
    are others in every pass.

    Parameters
    ----------
    keep : bool
        Whether a way back may follow.
    """
    dtype = inputs.x.dtype

    def arrays() -> tuple[dict[str, Array], dict[str, Array]]:
        return {name: device.empty(a.shape, dtype) for name, a in inputs.parameters.items()}, {}

    saved = begin(layer, device, inputs.x, OWN, arrays, inputs.bounds, inputs.states or None, keep)
    for name, array in saved.context.parameters.items():
        array[...] = inputs.parameters[name]
    return saved


def where(execution: Any, buffer: Any) -> tuple[Device, AbstractContextManager[Any]]:
    """The engine's device of a buffer, and the stream that JAX works on there."""
    kind, number = buffer.__dlpack_device__()
    device = get_device("host" if kind == HOST else "cuda")
    return device, device.on_stream(number, 0 if kind == HOST else execution.stream)


def as_arrays(device: Device, buffers: Any) -> Any:
    """A tree of buffers as arrays on their memory."""
    convert: Callable[[Any], Array] = np.asarray if device.xp is np else device.asarray
    return jax.tree.map(convert, buffers)
