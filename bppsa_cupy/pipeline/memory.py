"""Memory of the stages of a pipeline, by the formula of section 6.6 of the paper."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bppsa_cupy.layers import Flatten
from bppsa_cupy.layers.base import Shape
from bppsa_cupy.layers.elementwise import Elementwise
from bppsa_cupy.layers.residual import Place, walk
from bppsa_cupy.layers.stack import LayerStack
from bppsa_cupy.pipeline.placement import Item, Placement
from bppsa_cupy.pipeline.schedules import SCHEDULES, live_passes, staleness


@dataclass(frozen=True)
class StageMemory:
    """Bytes of one stage while the pipeline is full.

    weights        the parameters
    activations    the layers' outputs in one pass, and as much for their gradients
    copies         outputs of the further passes that are alive, without gradients
    weight_copies  copies of the parameters that the backward passes use
    """

    weights: int
    activations: int
    copies: int
    weight_copies: int

    @property
    def total(self) -> int:
        return self.weights + self.activations + self.copies + self.weight_copies


def stage_memory(
    placement: Placement, name: str, samples: int, *, micro: int = 1, itemsize: int = 4
) -> tuple[StageMemory, ...]:
    """The memory of every stage under the schedule `name`.

    Parameters
    ----------
    placement : Placement
    name : str
        One of `SCHEDULES`. Under ``"stale"`` the paper's stage i of K + 1 keeps 2 (K − i + 1) copies.
    samples : int
        Batch size; passes hold ``ceil(samples / micro)`` of them.
    micro : int
        Micro-batches per batch.
    itemsize : int
        Bytes per value; the paper counts 4.

    Notes
    -----
    Counted are outputs of convolutions, normalisations, pooling, linear and recurrent layers, padded
    shortcuts, and sums of residual blocks. Elementwise layers and flattening are not counted, as in the
    paper's table 6. A sequence of open length counts as one step.
    """
    stages, each = len(placement.stages), -(-samples // micro)
    rows = []
    for stage, items in enumerate(placement.stages):
        weights = itemsize * placement.weights[stage]
        outputs = itemsize * each * sum(map(_item_outputs, items))
        further = live_passes(name, stages, stage, micro) - 1
        stashed = staleness(name, stages, stage) if SCHEDULES[name].stashes else 0
        rows.append(StageMemory(weights, 2 * outputs, further * outputs, stashed * weights))
    return tuple(rows)


def _item_outputs(item: Item) -> int:
    """Values per sample that an item's layers output."""
    if item.kind == "open":
        return 0
    if item.kind == "close":
        return sum(map(_layer_outputs, walk(item.shortcut))) + _size(item.output_shape)
    return sum(map(_layer_outputs, walk(LayerStack([item.layer], item.input_shape))))


def _layer_outputs(place: Place) -> int:
    return 0 if isinstance(place.layer, (Elementwise, Flatten)) else _size(place.output_shape)


def _size(shape: Shape) -> int:
    return math.prod(1 if size is None else size for size in shape)
