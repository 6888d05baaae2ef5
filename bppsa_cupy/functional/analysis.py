"""`jacobians` of one layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bppsa_cupy.devices import Device
from bppsa_cupy.errors import PassError
from bppsa_cupy.functional.layout import is_by_time
from bppsa_cupy.functional.passes import forward
from bppsa_cupy.layers import Layer, Recurrent
from bppsa_cupy.layers.layer_records import layer_records
from bppsa_cupy.records.records import JacobianRecords


def jacobians(
    layer: Layer,
    parameters: Mapping[str, Any],
    x: Any,
    *,
    lengths: Any = None,
    states: Any = None,
    buffers: Mapping[str, Any] | None = None,
    index: int = 0,
    path: str = "",
    device: str | Device | None = None,
) -> JacobianRecords:
    """The transposed Jacobians of one layer at x, in evaluation mode: one record, and of a recurrent layer
    one an inner layer, direction and step; none of a layer that only reshapes.

    index, path  where the records say that the layer is
    The other arguments, and the errors for them, are those of `forward`; PassError for a layer that couples
    the samples of a batch.
    """
    _, saved = forward(
        layer, parameters, x, lengths=lengths, states=states, training=False, buffers=buffers, device=device
    )
    ctx, batch = saved.context, saved.slot.shapes.batch
    if layer.is_barrier(False) and not isinstance(layer, Recurrent):
        raise PassError(
            f"{layer!r} couples the samples of a batch, so that none has a Jacobian of its own: give "
            "BatchNorm its running statistics, or take the layers of a Residual block one by one"
        )
    shape = tuple(saved.slot.key[2])
    shape = (shape[0], shape[2]) if is_by_time(layer) else shape[1:]
    operator = None if isinstance(layer, Recurrent) else layer.jacobian(shape)
    with ctx.device.naming_memory:
        return JacobianRecords(layer_records(layer, ctx, shape, operator, batch, index=index, path=path))
