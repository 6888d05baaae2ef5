"""What a layer costs, for partitions of a network."""

from __future__ import annotations

import math

from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.plan import model_of

#: Samples, and steps where a network leaves them open, that layers are weighed by.
BATCH, STEPS = 16, 100


def layer_seconds(architecture: Architecture, device: str, batch: int = BATCH) -> list[float]:
    """The predicted seconds of each layer in a training step: its forward pass, its VJP, and its parameters'
    gradients, each of them as long as the VJP. `device` names the cost model."""
    model, seconds = model_of(device), []
    for index, layer in enumerate(architecture.layers):
        shape = tuple(STEPS if size is None else size for size in architecture.shapes[index])
        jacobian = architecture.jacobians[index]
        weights = sum(map(math.prod, layer.parameter_shapes().values()))
        terms = layer.vjp_multiply_adds(shape)
        if terms is None:
            # One without a Jacobian is recurrent, and uses its weights at each step, or reshapes.
            terms = jacobian.pattern.nnz if jacobian is not None else weights * shape[0]
        if not terms:
            seconds.append(0.0)
            continue
        moved = 8 * batch * math.prod(shape)
        once = model.work_seconds("vjp", terms * batch, moved) + model.seconds_per_call
        seconds.append(once * (3 if weights else 2))
    return seconds
