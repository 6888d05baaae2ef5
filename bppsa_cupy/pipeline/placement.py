"""Where a network is cut into the stages of a pipeline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_instance, as_integer, as_integers
from bppsa_cupy.distributed.balance import layer_multiply_adds
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.layers.base import Shape
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.pipeline.items import Item, counted_layers, items_of
from bppsa_cupy.plan import Partition


@dataclass(frozen=True)
class Boundary:
    """What passes from one stage to the next.

    shapes  without the batch: of the activation, and of the inputs of the residual blocks that are cut there,
            the outermost first
    """

    shapes: tuple[Shape, ...]

    def of_batch(self, batch: int, steps: int | None) -> tuple[Shape, ...]:
        """The shapes with a batch, of sequences of so many steps where their number is open."""
        return tuple((batch, *(steps if size is None else size for size in shape)) for shape in self.shapes)


class Placement:
    """The stages of a network by a pipeline placement vector (the paper's section 3).

    net  a Sequential, or its architecture
    ppv  (p_1, …, p_K): a pair of pipeline registers stands after each counted layer p_k. Layers are counted
         from 1, as the paper does: convolutions, linear and recurrent layers; all else belongs to the counted
         layer before it. A cut inside a residual block carries the block's input along; the shortcut is in
         the stage where the block ends. () is no cut: one stage

    stages      the items of each stage, in order
    boundaries  what enters each stage; of the first one, the network's input

    Raises BppsaError, which lists the counted layers, for a vector that does not increase or lies outside of
    1 to L − 1.
    """

    def __init__(self, net: Sequential | Architecture, ppv: Sequence[int] | int) -> None:
        if not isinstance(net, Architecture):
            as_instance("Placement", "a network", net, Sequential, "a Sequential", error=BppsaError)
        architecture = net.architecture if isinstance(net, Sequential) else net
        self.architecture: Architecture = architecture.in_mode(True)
        self.counted = counted_layers(self.architecture)
        self.ppv = self._checked(ppv)
        every = list(items_of(self.architecture, self.ppv))
        numbers = [sum(cut < item.number for cut in self.ppv) for item in every]
        self.stages: tuple[tuple[Item, ...], ...] = tuple(
            tuple(item for item, number in zip(every, numbers, strict=True) if number == stage)
            for stage in range(len(self.ppv) + 1)
        )
        self.boundaries = self._boundaries()

    def _checked(self, ppv: Any) -> tuple[int, ...]:
        cuts = as_integers("a pipeline", "ppv", ppv, error=BppsaError).reshape(-1).tolist()
        last = len(self.counted) - 1
        wrong = [cut for cut in cuts if not 1 <= cut <= last]
        if wrong or any(b <= a for a, b in pairwise(cuts)):
            takes = f"numbers from 1 to {last} that increase" if last > 0 else "no cut, ()"
            lines = ", ".join(f"{number} {text}" for number, text in enumerate(self.counted, 1))
            raise BppsaError(
                f"the pipeline placement {tuple(cuts)} was asked for: the network takes {takes}; its counted "
                f"layers are {lines or 'none'}"
            )
        return tuple(cuts)

    def _boundaries(self) -> tuple[Boundary, ...]:
        found: list[Boundary] = []
        carried: list[Shape] = []
        shape = self.architecture.input_shape
        for items in self.stages:
            found.append(Boundary((shape, *carried)))
            for item in items:
                if item.kind == "open":
                    carried.append(shape)
                elif item.kind == "close":
                    carried.pop()
                else:
                    shape = item.output_shape
        return tuple(found)

    @cached_property
    def parameter_names(self) -> tuple[tuple[str, ...], ...]:
        """By stage, the names of its parameters: together those of the network, in their order."""
        return tuple(tuple(name for item in items for name in item.parameter_names) for items in self.stages)

    @cached_property
    def buffer_names(self) -> tuple[tuple[str, ...], ...]:
        """By stage, the names of its buffers."""
        return tuple(tuple(name for item in items for name in item.buffer_names) for items in self.stages)

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """By stage, the number of parameters."""
        shapes = self.architecture.parameter_shapes()
        return tuple(sum(math.prod(shapes[name]) for name in names) for names in self.parameter_names)

    @property
    def stale_share(self) -> float:
        """The paper's percentage of stale weights as a fraction: the weights before the last cut of all."""
        total = sum(self.weights)
        return sum(self.weights[:-1]) / total if total else 0.0

    def describe(self, stage: int) -> str:
        """The counted layers of a stage, for a reader: "1 to 7"."""
        bounds = (0, *self.ppv, len(self.counted))
        first, last = bounds[stage] + 1, bounds[stage + 1]
        return f"{first} to {last}" if first < last else f"{last}" if last else "none"

    def __repr__(self) -> str:
        return f"Placement(ppv={self.ppv}, stages={len(self.stages)}, counted={len(self.counted)})"


def balanced_ppv(net: Sequential, cuts: int) -> tuple[int, ...]:
    """The placement of so many cuts whose heaviest stage has the fewest multiply-adds. Raises BppsaError
    where the network has too few counted layers."""
    as_instance("balanced_ppv", "a network", net, Sequential, "a Sequential", error=BppsaError)
    cuts = as_integer("balanced_ppv", "cuts", cuts, error=BppsaError)
    architecture = net.architecture
    counted = len(counted_layers(architecture))
    if not 0 <= cuts < counted:
        raise BppsaError(
            f"{cuts} cuts were asked for: the network has {counted} counted layers, and takes 0 to "
            f"{max(counted - 1, 0)}"
        )
    work = np.zeros(counted)
    for item in items_of(architecture, range(1, counted)):
        layers = item.shortcut.layers if item.kind == "close" else (item.layer,)
        if item.kind != "open" and layers:
            terms = layer_multiply_adds(Architecture(layers, item.input_shape)).sum()
            work[max(item.number, 1) - 1] += terms
    bounds = Partition.balanced(work, cuts + 1).bounds
    return bounds[1:-1]
