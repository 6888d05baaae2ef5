"""One direction of one inner layer with all that belongs to it, and the buffers of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.timescan import products
from bppsa_cupy.timescan.sizes import StackSize
from bppsa_cupy.timescan.walk import Walk, Weights


@dataclass(frozen=True, eq=False)
class Direction:
    """One direction of one inner layer; arrays are by time, and lie in memory as `Device.arrange` has them.

    name         "l0", "l0_reverse", "l1", ...
    walk         its passes over time
    values       (T, I, B), the inner layer's input (of the first I rows)
    parameters, gradients  those of PyTorch's names, shared with the network
    by_output    (T, H, B), the gradient by every step's output; None where there is none
    boundary     (P H, B), the gradient by the state after the last step
    delta        (T, cell.deltas * H, B), the gradient by the projected input, the separate gates' recurrent
                 sums and the unit parameters
    entering     (P H, B), the gradient by the state before the first step
    by_input     (T, I, B), what the direction makes of the gradient by the inner layer's input
    """

    name: str
    walk: Walk
    values: Array
    parameters: Weights
    gradients: Weights
    by_output: Array | None
    boundary: Array
    delta: Array
    entering: Array
    by_input: Array


def suffix(layer: int, direction: int) -> str:
    """PyTorch's: "_l0", "_l0_reverse", "_l1", ..."""
    return f"_l{layer}" + ("_reverse" if direction else "")


def stack_shapes(sizes: StackSize, device: Device) -> dict[str, tuple[int, ...]]:
    """Every buffer that `make_directions` takes but `lengths`, by name; all are of the network's dtype."""
    size, cell = sizes.walk, sizes.walk.cell
    T, B, H, S = size.steps, size.batch, size.hidden, cell.states * size.hidden
    heads, units = size.heads, size.units
    widths = {units, *map(sizes.inputs_of, range(sizes.layers))}
    shapes: dict[str, tuple[int, ...]] = {
        "input": (T, sizes.inputs, B),
        "projected": (T, cell.gates * H, B),
        "sums": (
            max(
                *(products.workspace_size(device, T, B, cell.gates * H, width) for width in widths),
                *(products.gradients_size(device, size, width) for width in widths),
            ),
        ),
    }
    for direction in range(sizes.directions):
        shapes[f"by_input{direction}"] = (T, sizes.inputs, B)
        if sizes.every_step or sizes.layers > 1:
            shapes[f"by_output{direction}"] = (T, H, B)
            if sizes.directions > 1 and sizes.layers > 1:
                shapes[f"by_joined{direction}"] = (T, sizes.directions * H, B)
        for layer in range(sizes.layers):
            own: dict[str, tuple[int, ...]] = {
                "unit": (heads, cell.parameters * units),
                "delta": (T, cell.deltas * H, B),
                **dict.fromkeys(("initial", "final", "boundary", "entering"), (S, B)),
            }
            if heads > 1 or not cell.sums:
                own["head_weights"] = (heads, cell.sums * units, units)
            if heads > 1 or not (sizes.bias and cell.sums):
                own["head_biases"] = (heads, cell.sums * units)
            shapes |= {name + suffix(layer, direction): shape for name, shape in own.items()}
    if sizes.directions > 1:
        for layer in range(1, sizes.layers):
            shapes[f"joined_l{layer}"] = (T, sizes.directions * H, B)
    return shapes | kept_shapes(sizes)


def kept_shapes(sizes: StackSize) -> dict[str, tuple[int, ...]]:
    """The buffers that a forward pass fills and the way back reads, by name: states and gates of each inner
    layer and direction. With input, lengths, first states and parameters they are all it needs."""
    size, cell = sizes.walk, sizes.walk.cell
    rows = {"state": cell.states * size.hidden, "gates": cell.kept * size.hidden}
    return {
        name + suffix(layer, direction): (size.steps, count, size.batch)
        for layer in range(sizes.layers)
        for direction in range(sizes.directions)
        for name, count in rows.items()
    }


def make_directions(
    device: Device,
    sizes: StackSize,
    buffers: Mapping[str, Array],
    parameters: Mapping[str, Array],
    gradients: Mapping[str, Array],
) -> list[list[Direction]]:
    """The directions of each inner layer; arguments are those of a `Stack`."""

    def arranged(name: str) -> Array:
        return device.arrange(buffers[name])

    def make(layer: int, direction: int) -> Direction:
        both = sizes.directions > 1
        of, last = suffix(layer, direction), layer == sizes.layers - 1
        cell = sizes.walk.cell
        in_place = sizes.walk.heads == 1 and cell.sums > 0
        if not (sizes.bias and cell.sums):
            buffers[f"head_biases{of}"][...] = 0
        walk = Walk(
            size=sizes.walk,
            reverse=direction == 1,
            weight_hh=parameters[f"weight_hh{of}"][None] if in_place else buffers[f"head_weights{of}"],
            bias_hh=parameters[f"bias_hh{of}"][None]
            if in_place and sizes.bias
            else buffers[f"head_biases{of}"],
            unit=buffers[f"unit{of}"],
            lengths=buffers["lengths"],
            initial=arranged(f"initial{of}"),
            projected=arranged("projected"),
            state=arranged(f"state{of}"),
            gates=arranged(f"gates{of}"),
            final=arranged(f"final{of}"),
        )
        inputs, by_input = "input", f"by_input{direction}"
        if layer:
            inputs = f"joined_l{layer}" if both else f"state_l{layer - 1}"
            by_input = f"by_joined{direction}" if both else f"by_output{direction}"
        return Direction(
            name=of[1:],
            walk=walk,
            values=arranged(inputs),
            parameters=_weights(parameters, of, sizes.unit),
            gradients=_weights(gradients, of, sizes.unit),
            by_output=arranged(f"by_output{direction}") if sizes.every_step or not last else None,
            boundary=arranged(f"boundary{of}"),
            delta=arranged(f"delta{of}"),
            entering=arranged(f"entering{of}"),
            by_input=arranged(by_input),
        )

    return [[make(layer, d) for d in range(sizes.directions)] for layer in range(sizes.layers)]


def _weights(arrays: Mapping[str, Array], of: str, unit: tuple[str, ...]) -> Weights:
    return Weights(
        weight_ih=arrays[f"weight_ih{of}"],
        weight_hh=arrays.get(f"weight_hh{of}"),
        bias_ih=arrays.get(f"bias_ih{of}"),
        bias_hh=arrays.get(f"bias_hh{of}"),
        unit=tuple(arrays[f"{name}{of}"] for name in unit),
    )
