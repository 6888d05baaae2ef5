"""Sizes of a recurrent layer's passes, and of their buffers."""

from __future__ import annotations

from dataclasses import dataclass

from bppsa_cupy.devices import Device
from bppsa_cupy.timescan import products
from bppsa_cupy.timescan.cells import Cell


@dataclass(frozen=True)
class StackSizes:
    """Sizes of a stack: T, B, F, H, inner layers, directions, whether there are biases, and whether
    every step is put out or the last state alone."""

    steps: int
    batch: int
    inputs: int
    hidden: int
    layers: int
    directions: int
    bias: bool
    every_step: bool

    def inputs_of(self, layer: int) -> int:
        """Features of an inner layer's input."""
        return self.directions * self.hidden if layer else self.inputs


def suffix(layer: int, direction: int) -> str:
    """PyTorch's: "_l0", "_l0_reverse", "_l1", ..."""
    return f"_l{layer}" + ("_reverse" if direction else "")


def stack_shapes(cell: Cell, sizes: StackSizes, device: Device) -> dict[str, tuple[int, ...]]:
    """Every buffer of a stack by name, but for `lengths`; all are of the network's dtype."""
    T, B, H = sizes.steps, sizes.batch, sizes.hidden
    S, parts = cell.state_size(H), products.parts_of(device, T, B)
    shapes: dict[str, tuple[int, ...]] = {
        "input": (T, sizes.inputs, B),
        "projected": (T, cell.gates * H, B),
        "sums": (
            parts * cell.gates * H * (max(map(sizes.inputs_of, range(sizes.layers)), default=0) + H + 1),
        ),
    }
    for direction in range(sizes.directions):
        shapes[f"by_input{direction}"] = (T, sizes.inputs, B)
        if sizes.every_step or sizes.layers > 1:
            shapes[f"by_output{direction}"] = (T, H, B)
            if sizes.directions > 1 and sizes.layers > 1:
                shapes[f"by_joined{direction}"] = (T, sizes.directions * H, B)
        for layer in range(sizes.layers):
            of = suffix(layer, direction)
            shapes[f"bias{of}"] = (cell.gates * H,)
            shapes[f"bias_n{of}"] = (H,)
            shapes[f"state{of}"] = (T, S, B)
            shapes[f"gates{of}"] = (T, cell.kept * H, B)
            shapes[f"delta{of}"] = (T, cell.deltas * H, B)
            for name in ("initial", "final", "boundary", "entering"):
                shapes[f"{name}{of}"] = (S, B)
    if sizes.directions > 1:
        for layer in range(1, sizes.layers):
            shapes[f"joined_l{layer}"] = (T, sizes.directions * H, B)
    return shapes
