"""Records of a pass's transposed Jacobians, for a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bppsa_cupy.passes import Pass
from bppsa_cupy.records import JacobianRecord

if TYPE_CHECKING:
    from bppsa_cupy.network import Sequential


def jacobian_records(network: Sequential, current: Pass) -> list[JacobianRecord]:
    """One record a layer with a Jacobian, from the first layer on, its values newly filled."""
    described = network.describe()["layers"]
    records = []
    for index, (layer, jacobian) in enumerate(zip(network.layers, network.jacobians, strict=True)):
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
