"""Memory as torchsummary counts it, by which the paper's table 6 was made."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bppsa_cupy.layers import Flatten
from bppsa_cupy.layers.base import Shape
from bppsa_cupy.layers.elementwise import Elementwise
from bppsa_cupy.layers.stack import LayerStack
from bppsa_cupy.layers.walk import Place, walk
from bppsa_cupy.pipeline.items import Item
from bppsa_cupy.pipeline.placement import Placement
from bppsa_cupy.pipeline.schedules import staleness

#: Bytes of a value, and of the paper's "MB".
VALUE, MIB = 4, 2**20


@dataclass(frozen=True)
class Summary:
    """Bytes of a network and its pipeline.

    weights      all parameters
    activations  of one sample by stage: the modules' outputs, and as much for their gradients
    increase     of one sample: the further copies of outputs that the schedule `stale` keeps
    """

    weights: int
    activations: tuple[int, ...]
    increase: int

    @property
    def share(self) -> float:
        """The increase by all activations."""
        total = sum(self.activations)
        return self.increase / total if total else 0.0


def summary(placement: Placement) -> Summary:
    """What table 6 has of a network that is cut so.

    A module's output counts 2 · 4 bytes a value, for itself and its gradient. Modules are convolutions,
    normalisations, pooling, linear and recurrent layers, the shortcut's padding, and a residual block, whose
    output is the sum; activation functions and flattening are functions, and none. While the pipeline is
    full, stage i of K + 1 keeps 2 (K − i + 1) further copies of its outputs, without gradients. Steps of
    sequences of open length count as one.
    """
    stages = len(placement.stages)
    values = [sum(map(_outputs, items)) for items in placement.stages]
    copies = [staleness("stale", stages, stage) for stage in range(stages)]
    return Summary(
        VALUE * sum(placement.weights),
        tuple(2 * VALUE * own for own in values),
        VALUE * sum(own * more for own, more in zip(values, copies, strict=True)),
    )


def _outputs(item: Item) -> int:
    """Values of one sample that an item's modules give."""
    if item.kind == "open":
        return 0
    if item.kind == "close":
        return sum(map(_own, walk(item.shortcut))) + _size(item.output_shape)
    return sum(_own(place) for place in walk(LayerStack([item.layer], item.input_shape)))


def _own(place: Place) -> int:
    """Values of one sample that a module gives itself."""
    return 0 if isinstance(place.layer, (Elementwise, Flatten)) else _size(place.output_shape)


def _size(shape: Shape) -> int:
    return math.prod(1 if size is None else size for size in shape)
