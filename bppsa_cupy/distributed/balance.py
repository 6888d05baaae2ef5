"""What layers cost, and the partitions of a network that cost the least."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.plan import Partition, cost_model_of

#: Samples, and steps where a network leaves them open, that layers are weighed by.
BATCH, STEPS = 16, 100
#: What equal parts may cost, as a multiple of the least time of back-propagation.
EQUAL_PARTS_COST = 1.1


@dataclass(frozen=True)
class LayerTimes:
    """Seconds of each layer: its forward pass, its VJP, and its parameters' gradients."""

    forward: Sequence[float]
    vjp: Sequence[float]
    gradients: Sequence[float]


def layer_times(architecture: Architecture, device: str, batch: int = BATCH) -> LayerTimes:
    """Predicted: all three of a layer take as long as its VJP. `device` names the cost model."""
    model, vjp = cost_model_of(device), []
    weights = [sum(map(math.prod, layer.parameter_shapes().values())) for layer in architecture.layers]
    for index, layer in enumerate(architecture.layers):
        shape = tuple(STEPS if size is None else size for size in architecture.shapes[index])
        jacobian = architecture.jacobians[index]
        terms = layer.vjp_multiply_adds(shape)
        if terms is None:
            # One without a Jacobian is recurrent, and uses its weights at each step, or reshapes.
            terms = jacobian.pattern.nnz if jacobian is not None else weights[index] * shape[0]
        moved = 8 * batch * math.prod(shape)
        vjp.append(model.work_seconds("vjp", terms * batch, moved) + model.seconds_per_call if terms else 0.0)
    return LayerTimes(vjp, vjp, [seconds if own else 0.0 for seconds, own in zip(vjp, weights, strict=True)])


def best_partition(times: LayerTimes, ranks: int) -> Partition:
    """Parts of equal seconds of a training step, which share the memory too; where back-propagation takes
    more than EQUAL_PARTS_COST of the least time by them, `backward_partition`."""
    step = [sum(parts) for parts in zip(times.forward, times.vjp, times.gradients, strict=True)]
    equal, quickest = Partition.balanced(step, ranks), backward_partition(times, ranks)
    allowed = EQUAL_PARTS_COST * backward_seconds(times, quickest)
    return equal if backward_seconds(times, equal) <= allowed else quickest


def backward_seconds(times: LayerTimes, partition: Partition) -> float:
    """The time of back-propagation over ranks: a rank starts when the gradient reaches it, sends its own on
    after its VJPs, and works out its parameters' gradients then. Messages take no time."""
    start = end = 0.0
    for rank in reversed(range(partition.ranks)):
        own = partition.part(rank)
        if not own:
            continue
        start += sum(times.vjp[own.start : own.stop])
        end = max(end, start + sum(times.gradients[own.start : own.stop]))
    return end


def backward_partition(times: LayerTimes, ranks: int) -> Partition:
    """The partition with the least `backward_seconds`.

    The rank of layers [begin, end) ends after all VJPs from `begin` on and its own parameters' gradients.
    Within a limit, each rank from the first on takes as many layers as it can: those after it start
    sooner then.
    """
    vjps = np.cumsum([0.0, *times.vjp[::-1]])[::-1]  # from a layer to the last
    gradients = np.cumsum([0.0, *times.gradients])

    def bounds(limit: float) -> tuple[int, ...] | None:
        cuts = [0]
        for _ in range(ranks):
            room = gradients[cuts[-1]] + limit - vjps[cuts[-1]]
            cuts.append(max(int(np.searchsorted(gradients, room, side="right")) - 1, cuts[-1]))
        return tuple(cuts) if cuts[-1] == len(gradients) - 1 else None

    low, high = float(vjps[0]), float(vjps[0] + gradients[-1])
    found = bounds(high)
    for _ in range(60):
        middle = (low + high) / 2
        if (better := bounds(middle)) is None:
            low = middle
        else:
            found, high = better, middle
    return Partition(found or (0, *[len(times.vjp)] * ranks))
