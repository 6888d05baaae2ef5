"""Records of one layer's transposed Jacobians at a pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array
from bppsa_cupy.jacobians.base import TransposedJacobian
from bppsa_cupy.layers.base import Context, Layer, Shape
from bppsa_cupy.records.record import JacobianRecord


def layer_records(
    layer: Layer,
    ctx: Context,
    shape: Shape,
    operator: TransposedJacobian | None,
    batch: int,
    *,
    index: int = 0,
    path: str = "",
    gradient: Array | None = None,
) -> Iterator[JacobianRecord]:
    """Yield the records of a layer at a finished forward pass.

    Parameters
    ----------
    layer, ctx : Layer, Context
        The layer and its part of the pass.
    shape : tuple of int
        Shape of its input, without the batch.
    operator : TransposedJacobian or None
        Its transposed Jacobian for that shape.
    batch : int
        Batch size.
    index, path : int, str
        The place of the layer in records.
    gradient : array or None
        Gradient with respect to its output, of the last backward pass.
    """
    geometry, device = layer.describe(shape), ctx.device
    place: dict[str, Any] = {"geometry": geometry, "path": path}
    lengths = None if ctx.lengths is None else np.array(device.to_host(ctx.lengths))
    for chain in layer.step_jacobians(ctx):
        for step, data in enumerate(chain.values):
            yield JacobianRecord(
                index, chain.name, chain.pattern, data, step, chain.direction, lengths=lengths, **place
            )
    if operator is None:
        return
    nnz = operator.pattern.nnz
    values = device.empty((nnz,) if operator.shared else (nnz, batch), ctx.dtype)
    operator.fill(device, ctx.parameters, ctx.saved, values)
    norm = None if gradient is None else float(device.xp.linalg.norm(gradient))
    yield JacobianRecord(index, type(layer).__name__, operator.pattern, values, gradient_norm=norm, **place)
