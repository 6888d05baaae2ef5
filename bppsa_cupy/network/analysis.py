"""Records of a pass's transposed Jacobians, for a reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bppsa_cupy.devices import Array
from bppsa_cupy.jacobians.base import TransposedJacobian
from bppsa_cupy.layers import Context, Layer
from bppsa_cupy.network.passes import Pass, SectionPass
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.records import JacobianRecords


def jacobian_records(current: Pass) -> JacobianRecords:
    """The records of each layer, from the first on, their values newly filled: one of a layer with a
    Jacobian; of a recurrent layer one an inner layer, direction and time; of a residual block those of its
    layers."""
    with current.device.naming_memory:
        return JacobianRecords(
            record for place in _places(current.whole) for record in place.records(current.batch)
        )


@dataclass
class _Place:
    """A layer at one pass.

    shape, operator  its input's shape, and its transposed Jacobian where it has one
    gradient         by its output, of the last way back; None before one
    outer, path      the index of the outermost layer that it is in, and where inside of that
    """

    layer: Layer
    shape: tuple[int, ...]
    operator: TransposedJacobian | None
    ctx: Context
    gradient: Array | None
    outer: int
    path: str

    def records(self, batch: int) -> Iterator[JacobianRecord]:
        layer, ctx, device = self.layer, self.ctx, self.ctx.device
        geometry = layer.describe(self.shape)
        for chain in layer.step_jacobians(ctx, self.gradient):
            for step, data in enumerate(chain.values):
                known = chain.gradient_norms
                yield JacobianRecord(
                    self.outer, chain.name, chain.pattern, data, step, chain.direction, geometry,
                    gradient_norm=None if known is None else float(known[step]), path=self.path,
                )  # fmt: skip
        if self.operator is None:
            return
        nnz = self.operator.pattern.nnz
        values = device.empty((nnz,) if self.operator.shared else (nnz, batch), ctx.dtype)
        self.operator.fill(device, ctx.parameters, ctx.saved, values)
        norm = None if self.gradient is None else float(device.xp.linalg.norm(self.gradient))
        yield JacobianRecord(
            self.outer, type(layer).__name__, self.operator.pattern, values, geometry=geometry,
            gradient_norm=norm, path=self.path,
        )  # fmt: skip


def _places(at: SectionPass) -> Iterator[_Place]:
    """The layers of a section, in order, with those inside of residual blocks in their places."""
    section, stack = at.section, at.section.stack
    for index, ctx in enumerate(at.contexts):
        if not ctx.saved:  # another rank's layer
            continue
        outer = index if section.outermost is None else section.outermost
        path = "" if section.outermost is None else f"{section.place}{index}".removeprefix(f"{outer}.")
        layer, shape, operator = stack.layers[index], stack.shapes[index], section.jacobians[index]
        yield _Place(layer, shape, operator, ctx, at.by_outputs.get(index), outer, path)
        for name in section.branches.get(index, {}):
            yield from _places(at.branch(index, name))
