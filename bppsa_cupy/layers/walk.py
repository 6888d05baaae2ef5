"""Every layer of a stack, those inside of residual blocks among them, each with its path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bppsa_cupy.layers.base import Context, Layer, Shape
from bppsa_cupy.layers.residual import Residual, ResidualContext
from bppsa_cupy.layers.stack import LayerStack


@dataclass(slots=True)
class Place:
    """A layer in a network.

    path   "3", or inside of a block "3.body.0"
    stack  the layers it is one of, and its `index` there
    ctx    its part of a pass; None where the walk is of no pass
    """

    path: str
    stack: LayerStack
    index: int
    ctx: Context | None

    @property
    def layer(self) -> Layer:
        return self.stack.layers[self.index]

    @property
    def output_shape(self) -> Shape:
        return self.stack.shapes[self.index + 1]


def walk(stack: LayerStack, contexts: Sequence[Context] | None = None, path: str = "") -> Iterator[Place]:
    """The layers in order, a block before those inside of it.

    contexts  of a pass; a block that the pass did not come to has nothing inside
    """
    for index, layer in enumerate(stack.layers):
        ctx = None if contexts is None else contexts[index]
        yield Place(f"{path}{index}", stack, index, ctx)
        if (ctx is None or isinstance(ctx, ResidualContext)) and isinstance(layer, Residual):
            inner = {} if ctx is None else ctx.inner
            for branch, inside in layer.stacks(stack.shapes[index]).items():
                if ctx is None or branch in inner:
                    yield from walk(inside, inner.get(branch), f"{path}{index}.{branch}.")
