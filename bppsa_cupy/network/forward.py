"""The forward pass: a batch through layers, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Context
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.buffers import BufferSet
from bppsa_cupy.network.parameters import ParameterSet
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.network.sequences import set_sequences


def begin(current: Pass, x: Any, lengths: Any, states: Any) -> Array:
    """Take a batch into a pass; it is on the device then. Raises what `Sequential.forward` raises."""
    given, architecture = current.device.asarray(x), current.architecture
    architecture.check_input(given.shape)
    if given.dtype != current.dtype:
        raise ShapeError(
            f"the network is {current.dtype} and got input of {given.dtype}: convert the input, as "
            f"x.astype({current.dtype.name!r})"
        )
    current.parameters.apply_masks()
    current.input, current.version = given, current.parameters.version
    current.output_gradients.clear()
    set_sequences(current, lengths, states)
    return given


def through(current: Pass, x: Array, layers: range, training: bool, random_state: Mapping[str, int]) -> Array:
    """The output of `layers`, one after another, for `x`, the input of the first; fills their contexts."""
    for index in layers:
        ctx = current.layers[index]
        ctx.training, ctx.draw = training, _draw(random_state, index)
        x = current.architecture.layers[index].forward(ctx, x)
    return x


def new_context(
    architecture: Architecture,
    index: int,
    parameters: ParameterSet,
    gradients: ParameterSet,
    buffers: BufferSet,
    training: bool,
    random_state: Mapping[str, int],
) -> Context:
    """A context of layer `index`, of no pass yet, on a network's parameters and gradients."""
    layer = architecture.layers[index]
    names = layer.parameter_shapes()
    return layer.context(
        device=parameters.device,
        dtype=parameters.dtype,
        parameters={name: parameters[f"{index}.{name}"] for name in names},
        gradients={name: gradients[f"{index}.{name}"] for name in names},
        masks={name: parameters.masks[f"{index}.{name}"] for name in layer.masks()},
        input_shape=architecture.shapes[index],
        training=training,
        draw=_draw(random_state, index),
        module_buffers={name: buffers[f"{index}.{name}"] for name in layer.initial_buffers()},
    )


def _draw(random_state: Mapping[str, int], index: int) -> tuple[int, int, int]:
    return random_state["key"], index, random_state["passes"]
