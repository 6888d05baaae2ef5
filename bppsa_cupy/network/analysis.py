"""Records of a pass's transposed Jacobians, for a reader."""

from __future__ import annotations

from collections.abc import Iterator

from bppsa_cupy.layers.layer_records import layer_records
from bppsa_cupy.network.passes import Pass, SectionPass
from bppsa_cupy.records.record import JacobianRecord
from bppsa_cupy.records.records import JacobianRecords


def jacobian_records(current: Pass) -> JacobianRecords:
    """The records of each layer, from the first on, their values newly filled: one of a layer with a
    Jacobian; of a recurrent layer one an inner layer, direction and time; of a residual block those of its
    layers."""
    with current.device.naming_memory:
        return JacobianRecords(_section_records(current.whole, current.batch))


def _section_records(at: SectionPass, batch: int) -> Iterator[JacobianRecord]:
    """Those of the layers of a section, in order, with those inside of residual blocks in their places."""
    section, stack = at.section, at.section.stack
    for index, ctx in enumerate(at.contexts):
        if not ctx.saved:  # another rank's layer
            continue
        outer = index if section.outermost is None else section.outermost
        path = "" if section.outermost is None else f"{section.place}{index}".removeprefix(f"{outer}.")
        yield from layer_records(
            stack.layers[index], ctx, stack.shapes[index], section.jacobians[index], batch,
            index=outer, path=path, gradient=at.by_outputs.get(index),
        )  # fmt: skip
        for name in section.branches.get(index, {}):
            yield from _section_records(at.branch(index, name), batch)
