"""The Jacobians of every step of a recurrent layer, and the gradients by its states."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.jacobians.cell import CellJacobian
from bppsa_cupy.layers.base import StepJacobians
from bppsa_cupy.layers.matrix_context import MatrixContext
from bppsa_cupy.timescan import Stack, output_gradients, state_gradients


def step_jacobians(ctx: MatrixContext, name: str, gradient: Array | None) -> Iterator[StepJacobians]:
    """The transposed Jacobians of each inner layer and direction, at a pass that went forward.

    name      of the layer's class
    gradient  by the layer's output, of the last way back; None before one
    """
    assert ctx.stack is not None
    device, passes, size = ctx.device, ctx.stack, ctx.stack.sizes.walk
    jacobian = CellJacobian(size.cell, size.hidden, size.heads)
    pattern = jacobian.pattern
    for number, layer in enumerate(zip(*(stack.layers for stack in passes.stacks), strict=True)):
        by_outputs = None
        if isinstance(passes, Stack) and ctx.went_back and gradient is not None:
            by_outputs = output_gradients(passes, number, gradient)
        for place, groups in enumerate(zip(*layer, strict=True)):
            norms, parts = None, []
            for walk in (direction.walk for direction in groups):
                parts.append(device.empty((walk.size.steps, pattern.nnz, walk.size.batch), ctx.dtype))
                jacobian.fill(device, walk, parts[-1])
            values = parts[0] if len(parts) == 1 else device.xp.concatenate(parts, axis=2)
            if by_outputs is not None:
                by_states = state_gradients(device, groups[0], by_outputs[place], pattern, values)
                squares = (by_states.astype(np.float64) ** 2).sum(axis=(1, 2))
                norms = np.sqrt(device.to_host(squares))
            way = "backward" if groups[0].walk.reverse else "forward"
            yield StepJacobians(f"{name} l{number}", way, pattern, values, norms)
