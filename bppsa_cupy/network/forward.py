"""The forward pass: a batch through every layer, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Context
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.parameters import ParameterSet
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.network.sequences import set_sequences


def run_forward(
    current: Pass, x: Any, lengths: Any, states: Any, training: bool, random_state: Mapping[str, int]
) -> Array:
    """Fill a pass from a batch; its output. See `Sequential.forward`, and raises what that raises."""
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
    y = given
    for index, (layer, ctx) in enumerate(zip(architecture.layers, current.layers, strict=True)):
        ctx.training, ctx.draw = training, _draw(random_state, index)
        y = layer.forward(ctx, y)
    current.output = y
    return y


def new_context(
    architecture: Architecture,
    index: int,
    parameters: ParameterSet,
    gradients: ParameterSet,
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
    )


def _draw(random_state: Mapping[str, int], index: int) -> tuple[int, int, int]:
    return random_state["key"], index, random_state["passes"]
