"""Records of a pass's transposed Jacobians, for a reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bppsa_cupy.layers import Context, Recurrent
from bppsa_cupy.network.passes import Pass
from bppsa_cupy.records.record import JacobianRecord

if TYPE_CHECKING:
    from bppsa_cupy.network.sequential import Sequential


def jacobian_records(network: Sequential, current: Pass) -> list[JacobianRecord]:
    """The records of each layer, from the first on, their values newly filled: one of a layer with a
    Jacobian; of a recurrent layer one an inner layer, direction and time."""
    described = network.describe()["layers"]
    records: list[JacobianRecord] = []
    for index, (layer, jacobian) in enumerate(zip(network.layers, network.jacobians, strict=True)):
        if isinstance(layer, Recurrent):
            records += _step_records(index, layer, current.layers[index], described[index])
        if jacobian is None:
            continue
        nnz = jacobian.pattern.nnz
        shape = (nnz,) if jacobian.shared else (nnz, current.batch)
        values = network.device.empty(shape, network.dtype)
        state = current.layers[index]
        jacobian.fill(network.device, state.parameters, state.saved, values)
        gradient = current.output_gradients.get(index)
        norm = None if gradient is None else float(network.device.xp.linalg.norm(gradient))
        records.append(
            JacobianRecord(
                layer=index,
                name=type(layer).__name__,
                step=0,
                direction="forward",
                pattern=jacobian.pattern,
                data=values,
                geometry=described[index],
                gradient_norm=norm,
            )
        )
    return records


def _step_records(
    index: int, layer: Recurrent, ctx: Context, geometry: dict[str, Any]
) -> Iterator[JacobianRecord]:
    for name, direction, pattern, values in layer.step_jacobians(ctx):
        for step, data in enumerate(values):
            yield JacobianRecord(index, name, pattern, data, step, direction, geometry)
