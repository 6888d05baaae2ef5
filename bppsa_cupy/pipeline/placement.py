"""Where a network is cut into the stages of a pipeline: residual blocks that are cut are opened."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from bppsa_cupy.arguments import as_integer, as_integers
from bppsa_cupy.distributed.network import layer_multiply_adds
from bppsa_cupy.errors import BppsaError
from bppsa_cupy.layers import Layer, Recurrent, Residual
from bppsa_cupy.layers.base import Shape
from bppsa_cupy.layers.stack import LayerStack, walk
from bppsa_cupy.layers.weighted import Weighted
from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.plan import Partition


class Item:
    """A layer, or an end of a residual block that is cut.

    Attributes
    ----------
    kind : str
        "layer"; "open" lays the input of a block aside, before its body; "close", after its body, adds
        the shortcut of what was laid aside last.
    stack : LayerStack
        The layers it is one of, and its `index` there.
    place : str
        The place of the layer in the network: "3.body.0".
    number : int
        Number of the counted layer that it belongs to, from 1; 0 before the first one.
    layer : Layer
        The layer, or the residual block.
    input_shape, output_shape : tuple of int
        Shapes of one sample at the input and output of `layer`.
    """

    def __init__(self, kind: str, stack: LayerStack, index: int, path: str, number: int) -> None:
        self.kind, self.stack, self.index, self.path, self.number = kind, stack, index, path, number
        self.layer, self.place = stack.layers[index], f"{path}{index}"
        self.input_shape: Shape = stack.shapes[index]
        self.output_shape: Shape = stack.shapes[index + 1]

    @cached_property
    def shortcut(self) -> LayerStack:
        """The shortcut that a block's end adds."""
        assert isinstance(self.layer, Residual)
        return self.layer.stacks(self.input_shape)["shortcut"]

    def names(self, names: Iterable[str]) -> tuple[str, ...]:
        """The network's names of what the item holds: a block's end holds its shortcut's."""
        if self.kind == "open":
            return ()
        return tuple(
            f"{self.place}.{name}" for name in names if self.kind == "layer" or name.startswith("shortcut.")
        )


def is_counted(layer: Layer) -> bool:
    """Whether the paper counts the layer: convolutions and linear layers, and recurrent ones here."""
    return isinstance(layer, (Weighted, Recurrent))


def counted_layers(stack: LayerStack) -> tuple[str, ...]:
    """The counted layers in order, each by place and kind: "3.body.0 Conv2d". Those of shortcuts are not."""
    return tuple(
        f"{place.path} {type(place.layer).__name__}"
        for place in walk(stack)
        if is_counted(place.layer) and ".shortcut." not in place.path
    )


def items_of(stack: LayerStack, cuts: Sequence[int], path: str = "", before: int = 0) -> Iterator[Item]:
    """The items of a stack, in order. A residual block is opened where one of the cuts lies inside of it.

    Parameters
    ----------
    cuts : sequence of int
        Numbers of counted layers after which the network is cut.
    before : int, default: 0
        The number of counted layers before the stack.
    """
    number = before
    for index, layer in enumerate(stack.layers):
        body = layer.stacks(stack.shapes[index])["body"] if isinstance(layer, Residual) else None
        inside = int(is_counted(layer)) if body is None else len(counted_layers(body))
        if body is not None and any(number < cut < number + inside for cut in cuts):
            yield Item("open", stack, index, path, number + 1)
            for item in items_of(body, cuts, f"{path}{index}.body.", number):
                # What stands before the first counted layer of the body follows the block's opening.
                item.number = max(item.number, number + 1)
                yield item
            number += inside
            yield Item("close", stack, index, path, number)
        else:
            number += inside
            yield Item("layer", stack, index, path, number)


class Placement:
    """The stages of a network, cut by a pipeline placement vector (PPV; Zhang and Abdelrahman 2020).

    Parameters
    ----------
    net : Sequential or Architecture
        The network.
    ppv : sequence of int, or int
        The numbers (p_1, …, p_K) of the layers after which the network is cut. A single int makes one cut. ()
        makes no cut, hence one stage. Only Conv2d, Linear and recurrent layers outside of shortcuts are
        counted, from 1. Every other layer is in the stage of the counted layer before it, and layers before
        the first counted layer are in the first stage.

    Attributes
    ----------
    stages : tuple of tuple of Item
        The items of each stage, in order: layers, or the two ends of a residual block that is cut.
    weights : tuple of int
        The number of parameters of each stage.
    boundaries : tuple of tuple of Shape
        The shapes, without the batch, of the tensors that enter each stage: the output of the stage before,
        then the inputs of the residual blocks that are cut there, outermost first.

    Raises
    ------
    BppsaError
        If the numbers do not increase, or are not between 1 and L − 1 for L counted layers. The message lists
        these layers.

    Notes
    -----
    At a cut inside a residual block, the input of the block is also sent to the next stage. The shortcut
    belongs to the stage where the block ends.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(3, 4), bp.ReLU(), bp.Linear(4, 2)], input_shape=(3,), device="host")
    >>> placement = bp.Placement(net, (1,))
    >>> len(placement.stages), placement.weights
    (2, (16, 10))
    """

    def __init__(self, net: Sequential | Architecture, ppv: Sequence[int] | int) -> None:
        architecture = net.architecture if isinstance(net, Sequential) else net
        self.architecture: Architecture = architecture.in_mode(True)
        self.counted = counted_layers(self.architecture)
        cuts = as_integers("a pipeline", "ppv", ppv, error=BppsaError).reshape(-1).tolist()
        last = len(self.counted) - 1
        if any(not 1 <= cut <= last for cut in cuts) or any(b <= a for a, b in pairwise(cuts)):
            lines = ", ".join(f"{number} {text}" for number, text in enumerate(self.counted, 1))
            takes = (
                f"numbers from 1 to {last} that increase, of the layers {lines}" if last > 0 else "no cut, ()"
            )
            raise BppsaError(f"the pipeline placement {tuple(cuts)} does not fit the network: pass {takes}")
        self.ppv: tuple[int, ...] = tuple(cuts)
        every = list(items_of(self.architecture, self.ppv))
        numbers = [sum(cut < item.number for cut in self.ppv) for item in every]
        self.stages: tuple[tuple[Item, ...], ...] = tuple(
            tuple(item for item, number in zip(every, numbers, strict=True) if number == stage)
            for stage in range(len(self.ppv) + 1)
        )
        boundaries: list[tuple[Shape, ...]] = []
        carried: list[Shape] = []
        shape = self.architecture.input_shape
        for items in self.stages:
            boundaries.append((shape, *carried))
            for item in items:
                if item.kind == "open":
                    carried.append(shape)
                elif item.kind == "close":
                    carried.pop()
                else:
                    shape = item.output_shape
        self.boundaries = tuple(boundaries)

    @cached_property
    def parameter_names(self) -> tuple[tuple[str, ...], ...]:
        """The names of the parameters of each stage, in the order of the network."""
        return tuple(
            tuple(name for item in items for name in item.names(item.layer.parameter_shapes()))
            for items in self.stages
        )

    @cached_property
    def buffer_names(self) -> tuple[tuple[str, ...], ...]:
        """The names of the buffers of each stage, in the order of the network."""
        return tuple(
            tuple(name for item in items for name in item.names(item.layer.initial_buffers()))
            for items in self.stages
        )

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """The number of parameters of each stage."""
        shapes = self.architecture.parameter_shapes()
        return tuple(sum(math.prod(shapes[name]) for name in names) for names in self.parameter_names)

    @property
    def stale_share(self) -> float:
        """The share of parameters before the last cut, called stale by Zhang and Abdelrahman (2020)."""
        total = sum(self.weights)
        return sum(self.weights[:-1]) / total if total else 0.0

    def describe(self, stage: int) -> str:
        """Return the numbers of the layers in stage `stage`, counted as in `ppv`, as text: "1 to 7"."""
        bounds = (0, *self.ppv, len(self.counted))
        first, last = bounds[stage] + 1, bounds[stage + 1]
        return f"{first} to {last}" if first < last else f"{last}" if last else "none"

    def __repr__(self) -> str:
        return f"Placement(ppv={self.ppv}, stages={len(self.stages)}, counted={len(self.counted)})"


def balanced_ppv(net: Sequential, cuts: int) -> tuple[int, ...]:
    """Find cuts for which the stage with the most multiply-adds has as few as possible.

    Parameters
    ----------
    net : Sequential
        The network.
    cuts : int
        The number of cuts K.

    Returns
    -------
    tuple of int, (K,)
        The argument `ppv` of `Placement` and `Pipeline`: the layers after which the network is cut.

    Raises
    ------
    BppsaError
        If K is negative, or the network has at most K Conv2d, Linear and recurrent layers.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> net = bp.Sequential([bp.Linear(3, 4), bp.ReLU(), bp.Linear(4, 2)], input_shape=(3,), device="host")
    >>> bp.balanced_ppv(net, 1)
    (1,)
    """
    cuts = as_integer("balanced_ppv", "cuts", cuts, error=BppsaError)
    architecture = net.architecture
    counted = len(counted_layers(architecture))
    if not 0 <= cuts < counted:
        raise BppsaError(
            f"balanced_ppv got cuts={cuts}: pass 0 to {max(counted - 1, 0)}, because the network has "
            f"{counted} Conv2d, Linear and recurrent layers outside of shortcuts"
        )
    work = np.zeros(counted)
    for item in items_of(architecture, range(1, counted)):
        layers = item.shortcut.layers if item.kind == "close" else (item.layer,)
        if item.kind != "open" and layers:
            terms = layer_multiply_adds(Architecture(layers, item.input_shape)).sum()
            work[max(item.number, 1) - 1] += terms
    bounds = Partition.balanced(work, cuts + 1).bounds
    return bounds[1:-1]
