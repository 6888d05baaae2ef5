"""Records of a pass's transposed Jacobians, for a reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.layers import Context, Layer, Residual
from bppsa_cupy.layers.residual import ResidualContext
from bppsa_cupy.layers.stack import LayerStack
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.records.record import JacobianRecord


def jacobian_records(current: Pass) -> list[JacobianRecord]:
    """The records of each layer, from the first on, their values newly filled: one of a layer with a
    Jacobian; of a recurrent layer one an inner layer, direction and time; of a residual block those of its
    layers."""
    places = _places(current.architecture, current.layers, current.output_gradients)
    return [record for place in places for record in place.records(current.batch)]


@dataclass
class _Place:
    """A layer at one pass.

    shape, operator  its input's shape and its transposed Jacobian
    gradient         by its output, of the last way back; None before one
    outer, path      the index of the outermost layer that it is in, and where inside of that
    """

    layer: Layer
    shape: tuple[int, ...]
    operator: Any
    ctx: Context
    gradient: Array | None
    outer: int
    path: str

    def records(self, batch: int) -> Iterator[JacobianRecord]:
        layer, ctx, device = self.layer, self.ctx, self.ctx.device
        geometry = layer.describe(self.shape)
        for name, direction, pattern, values in layer.step_jacobians(ctx):
            for step, data in enumerate(values):
                yield JacobianRecord(self.outer, name, pattern, data, step, direction, geometry)
        if self.operator is None or layer.is_barrier(ctx.training):
            return
        nnz = self.operator.pattern.nnz
        values = device.empty((nnz,) if self.operator.shared else (nnz, batch), ctx.dtype)
        self.operator.fill(device, ctx.parameters, ctx.saved, values)
        norm = None if self.gradient is None else float(device.xp.linalg.norm(self.gradient))
        yield JacobianRecord(
            self.outer, type(layer).__name__, self.operator.pattern, values, geometry=geometry,
            gradient_norm=norm, path=self.path,
        )  # fmt: skip


def _places(
    stack: LayerStack,
    contexts: Sequence[Context],
    gradients: Mapping[int, Array],
    outer: int | None = None,
    prefix: str = "",
) -> Iterator[_Place]:
    """The layers of a stack, in order, with those inside of residual blocks in their places."""
    for index, (layer, ctx) in enumerate(zip(stack.layers, contexts, strict=True)):
        if not ctx.saved:  # another rank's layer
            continue
        top, path = (index, "") if outer is None else (outer, f"{prefix}{index}")
        shape, operator = stack.shapes[index], stack.operators[index]
        yield _Place(layer, shape, operator, ctx, gradients.get(index), top, path)
        if isinstance(layer, Residual) and isinstance(ctx, ResidualContext):
            for branch, inner in layer.stacks(shape).items():
                start = f"{path}.{branch}." if path else f"{branch}."
                yield from _places(inner, ctx.inner[branch], ctx.by_outputs.get(branch, {}), top, start)
