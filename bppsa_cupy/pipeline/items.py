"""A network as a row of items, so that it can be cut anywhere: residual blocks that are cut are opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from bppsa_cupy.layers import Layer, Recurrent, Residual
from bppsa_cupy.layers.base import Shape
from bppsa_cupy.layers.residual import walk
from bppsa_cupy.layers.stack import LayerStack
from bppsa_cupy.layers.weighted import Weighted


@dataclass(frozen=True)
class Item:
    """A layer as a whole, or an end of a residual block that is cut.

    kind    "layer"; "open" lays the input of a block aside, before its body; "close", after its body, adds
            the shortcut of what was laid aside last
    stack   the layers it is one of, and its `index` there
    path    where that stack is: "" for the network, "3.body." for a body
    number  of the counted layer that it belongs to, from 1; 0 before the first one
    """

    kind: str
    stack: LayerStack
    index: int
    path: str
    number: int

    @property
    def layer(self) -> Layer:
        return self.stack.layers[self.index]

    @property
    def place(self) -> str:
        """The layer's place in the network: "3.body.0"."""
        return f"{self.path}{self.index}"

    @property
    def input_shape(self) -> Shape:
        """Of one sample: of a layer, or of the residual block."""
        return self.stack.shapes[self.index]

    @property
    def output_shape(self) -> Shape:
        return self.stack.shapes[self.index + 1]

    @cached_property
    def shortcut(self) -> LayerStack:
        """The shortcut that a block's end adds."""
        assert isinstance(self.layer, Residual)
        return self.layer.stacks(self.input_shape)["shortcut"]

    @cached_property
    def parameter_names(self) -> tuple[str, ...]:
        return self._names(self.layer.parameter_shapes())

    @cached_property
    def buffer_names(self) -> tuple[str, ...]:
        return self._names(self.layer.initial_buffers())

    def _names(self, own: Iterable[str]) -> tuple[str, ...]:
        """The network's names of what the item holds: a block's end holds its shortcut's."""
        if self.kind == "open":
            return ()
        return tuple(
            f"{self.place}.{name}" for name in own if self.kind == "layer" or name.startswith("shortcut.")
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

    cuts    numbers of counted layers after which the network is cut
    before  the number of counted layers before the stack
    """
    number = before
    for index, layer in enumerate(stack.layers):
        body = layer.stacks(stack.shapes[index])["body"] if isinstance(layer, Residual) else None
        inside = int(is_counted(layer)) if body is None else len(counted_layers(body))
        if body is not None and any(number < cut < number + inside for cut in cuts):
            yield Item("open", stack, index, path, number + 1)
            for item in items_of(body, cuts, f"{path}{index}.body.", number):
                # What stands before the first counted layer of the body follows the block's opening.
                own = max(item.number, number + 1)
                yield item if own == item.number else Item(item.kind, item.stack, item.index, item.path, own)
            number += inside
            yield Item("close", stack, index, path, number)
        else:
            number += inside
            yield Item("layer", stack, index, path, number)
