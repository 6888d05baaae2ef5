"""Records of a pass's transposed Jacobians, for a reader."""

from __future__ import annotations

from bppsa_cupy.network.passes import Pass
from bppsa_cupy.records.record import JacobianRecord


def jacobian_records(current: Pass) -> list[JacobianRecord]:
    """The records of each layer, from the first on, their values newly filled: one of a layer with a
    Jacobian; of a recurrent layer one an inner layer, direction and time."""
    architecture, device = current.architecture, current.device
    described = architecture.describe()["layers"]
    records: list[JacobianRecord] = []
    for index, (layer, jacobian) in enumerate(zip(architecture.layers, architecture.jacobians, strict=True)):
        ctx, geometry = current.layers[index], described[index]
        if not ctx.saved:  # another rank's layer
            continue
        for name, direction, pattern, values in layer.step_jacobians(ctx):
            for step, data in enumerate(values):
                records.append(JacobianRecord(index, name, pattern, data, step, direction, geometry))
        if jacobian is None:
            continue
        nnz = jacobian.pattern.nnz
        values = device.empty((nnz,) if jacobian.shared else (nnz, current.batch), current.dtype)
        jacobian.fill(device, ctx.parameters, ctx.saved, values)
        gradient = current.output_gradients.get(index)
        norm = None if gradient is None else float(device.xp.linalg.norm(gradient))
        name = type(layer).__name__
        records.append(
            JacobianRecord(index, name, jacobian.pattern, values, geometry=geometry, gradient_norm=norm)
        )
    return records
