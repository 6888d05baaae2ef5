"""The Jacobians of a network's layers, inside of its residual blocks too; and the runs that scans take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bppsa_cupy.jacobians.base import TransposedJacobian
from bppsa_cupy.layers import Residual
from bppsa_cupy.layers.stack import LayerStack


@dataclass(frozen=True)
class Run:
    """A maximal run of layers of a network whose Jacobian is one CSR matrix a sample.

    start, stop  layer indices, half open
    elements     the layers with a Jacobian, from the last to the first: a_1, …, a_n
    position     its number among the runs, and so that of its chain in a plan
    """

    start: int
    stop: int
    elements: tuple[int, ...]
    position: int


@dataclass(frozen=True, eq=False)
class Section:
    """Layers one after another in one mode: the network's own ones, or those of a residual block's branch.

    stack      the layers
    place      of a branch, "3.body."; "" of the network's own layers
    outermost  of a branch, the index of the network's own layer that it lies in
    jacobians  of each layer; None for one that only reshapes, for a barrier, and where the number of steps is
               left open
    branches   by a block's index the sections inside of it, by name
    """

    stack: LayerStack
    place: str
    outermost: int | None
    jacobians: tuple[TransposedJacobian | None, ...]
    branches: Mapping[int, Mapping[str, Section]]


def make_section(
    stack: LayerStack,
    training: bool,
    operators: dict[Any, TransposedJacobian | None],
    place: str = "",
    outermost: int | None = None,
) -> Section:
    """The section of a stack.

    operators  the transposed Jacobians made so far, which sections of both modes share: layers of equal
               geometry have one, and so one pattern
    """
    jacobians: list[TransposedJacobian | None] = []
    branches: dict[int, dict[str, Section]] = {}
    for index, (layer, shape) in enumerate(zip(stack.layers, stack.shapes, strict=False)):
        operator = None
        if not layer.is_barrier(training) and None not in shape:
            key = type(layer), repr(layer), json.dumps(layer.describe(shape), sort_keys=True)
            if key not in operators:
                operators[key] = layer.jacobian(shape)
            operator = operators[key]
        jacobians.append(operator)
        if isinstance(layer, Residual):
            top = index if outermost is None else outermost
            branches[index] = {
                name: make_section(inner, training, operators, f"{place}{index}.{name}.", top)
                for name, inner in layer.stacks(shape).items()
            }
    return Section(stack, place, outermost, tuple(jacobians), branches)
