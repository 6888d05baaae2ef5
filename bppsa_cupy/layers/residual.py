"""Residual blocks (He et al. 2016), and the walk through every layer of a stack and of the blocks in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np

from bppsa_cupy.arguments import as_list
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.base import Context, Layer, Shape
from bppsa_cupy.layers.stack import LayerStack, by_name, with_masks

#: The two branches, in the order of a state dict.
BRANCHES = ("body", "shortcut")


@dataclass
class ResidualContext(Context):
    """A residual block's part of a pass.

    Attributes
    ----------
    inner : dict of str to list of Context
        Contexts of the layers of each branch.
    by_outputs : dict of str to dict of int to array
        Gradients with respect to layer outputs of each branch, of the last backward pass.
    """

    inner: dict[str, list[Context]] = field(default_factory=dict, repr=False)
    by_outputs: dict[str, dict[int, Array]] = field(default_factory=dict, repr=False)

    def kept(self) -> Iterator[Array]:
        yield from super().kept()
        for contexts in self.inner.values():
            for ctx in contexts:
                yield from ctx.kept()

    def let_go(self) -> None:
        super().let_go()
        self.by_outputs.clear()
        for contexts in self.inner.values():
            for ctx in contexts:
                ctx.let_go()


class Residual(Layer):
    """Residual block: y = body(x) + shortcut(x).

    Parameters
    ----------
    body : sequence of Layer
        The layers of the body. Residual blocks may be nested. Initial states of recurrent layers are 0.
    shortcut : sequence of Layer, default: ()
        The layers of the shortcut. An empty sequence means the identity.

    Raises
    ------
    ShapeError
        If layers do not fit, or body and shortcut have different output shapes. The message names the layer.
    ArgumentError
        If `body` or `shortcut` is not a sequence.

    Notes
    -----
    Parameters and buffers are named as in nested PyTorch modules: "body.0.weight", "shortcut.0.weight".

    The scan over layers stops at a residual block, and `backward` computes its VJP, the sum of the VJPs of
    body and shortcut. The Jacobian of a block with two 3×3 convolutions of C channels would have 25 C entries
    per row.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> layer = bp.Residual([bp.Linear(4, 4), bp.Tanh()])
    >>> layer.output_shape((4,)), list(layer.parameter_shapes())
    ((4,), ['body.0.weight', 'body.0.bias'])
    """

    context = ResidualContext
    backward_reads = ("input",)

    def __init__(self, body: Sequence[Layer], shortcut: Sequence[Layer] = ()) -> None:
        self.branches = {
            name: tuple(as_list("Residual", name, layers, "a list of layers, such as [bp.ReLU()]"))
            for name, layers in zip(BRANCHES, (body, shortcut), strict=True)
        }
        self._stacks: dict[Shape, dict[str, LayerStack]] = {}

    def stacks(self, input_shape: Shape) -> dict[str, LayerStack]:
        """Return body and shortcut for an input shape. Raises ShapeError if they do not fit."""
        if input_shape not in self._stacks:
            stacks = {}
            for name, layers in self.branches.items():
                try:
                    stacks[name] = LayerStack(layers, input_shape)
                except ShapeError as error:
                    raise error.at(name) from error
            outputs = [stack.output_shape for stack in stacks.values()]
            if outputs[0] != outputs[1]:
                raise ShapeError(
                    f"for input {input_shape}, the body of Residual returns {outputs[0]}, but its shortcut "
                    f"returns {outputs[1]}: make both shapes equal, for example with "
                    "shortcut=[PadShortcut(channels, stride)]"
                )
            self._stacks[input_shape] = stacks
        return self._stacks[input_shape]

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments. The result of `describe` is JSON-serialisable."""
        return {name: list(layers) for name, layers in self.branches.items()}

    def describe(self, input_shape: Shape) -> dict[str, Any]:
        branches = {name: stack.describe_layers() for name, stack in self.stacks(input_shape).items()}
        return {"type": type(self).__name__, "input_shape": list(input_shape), **branches}

    def output_shape(self, input_shape: Shape) -> Shape:
        return self.stacks(input_shape)["body"].output_shape

    def is_barrier(self, training: bool) -> bool:
        return True

    def is_recurrent(self) -> bool:
        return any(layer.is_recurrent() for layers in self.branches.values() for layer in layers)

    def jacobian(self, input_shape: Shape) -> None:
        return None

    def vjp_multiply_adds(self, input_shape: Shape) -> int:
        total = 0
        for stack in self.stacks(input_shape).values():
            for layer, shape in zip(stack.layers, stack.shapes, strict=False):
                count = layer.vjp_multiply_adds(shape)
                if count is None:
                    operator = layer.jacobian(shape)
                    count = 0 if operator is None else operator.pattern.nnz
                total += count
        return total

    # ---- what the branches hold, by name ----

    def parameter_shapes(self) -> dict[str, Shape]:
        return self._by_name(lambda layer: layer.parameter_shapes())

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        return self._by_name(lambda layer: layer.initialize(generator))

    def initial_buffers(self) -> dict[str, np.ndarray]:
        return self._by_name(lambda layer: layer.initial_buffers())

    def masks(self) -> dict[str, np.ndarray]:
        return self._by_name(lambda layer: layer.masks())

    def state_names(self) -> tuple[str, ...]:
        return tuple(self._by_name(lambda layer: dict.fromkeys(layer.state_names())))

    def maskable(self) -> tuple[str, ...]:
        return tuple(self._by_name(lambda layer: dict.fromkeys(layer.maskable())))

    def kept(self, input_shape: Shape, device: str) -> dict[str, np.ndarray]:
        return {
            f"{branch}.{name}": index
            for branch, stack in self.stacks(input_shape).items()
            for name, index in stack.kept(device).items()
        }

    def with_masks(self, masks: Mapping[str, Any]) -> Residual:
        return Residual(
            **{branch: with_masks(layers, masks, f"{branch}.") for branch, layers in self.branches.items()}
        )

    def _by_name(self, of_layer: Callable[[Layer], Mapping[str, Any]]) -> dict[str, Any]:
        """What `of_layer` gives by a layer's own names, by the block's."""
        return {
            f"{branch}.{name}": value
            for branch, layers in self.branches.items()
            for name, value in by_name(map(of_layer, layers)).items()
        }

    # ---- passes ----

    def forward(self, ctx: ResidualContext, x: Array) -> Array:
        results = []
        for branch, stack in self.stacks(ctx.input_shape).items():
            if branch not in ctx.inner:
                ctx.inner[branch] = self._contexts(ctx, branch, stack)
            for inner in ctx.inner[branch]:
                inner.lengths, inner.resets, inner.over_time = ctx.lengths, ctx.resets, ctx.over_time
                inner.first_sample, inner.keeps = ctx.first_sample, ctx.keeps
            draws = partial(inner_draw, ctx.draw, branch)
            try:
                results.append(stack.forward(ctx.inner[branch], x, ctx.training, draws))
            except ShapeError as error:
                raise error.at(branch) from error
        y = ctx.buffer("output", results[0].shape)
        ctx.device.xp.add(*results, out=y)
        ctx.saved["output"] = y
        return y

    def vjp(self, ctx: ResidualContext, gradient: Array) -> Array:
        results = []
        for branch, stack in self.stacks(ctx.input_shape).items():
            result = gradient
            for layer, inner in zip(reversed(stack.layers), reversed(ctx.inner[branch]), strict=True):
                result = layer.vjp(inner, result)
            results.append(result)
        return self._sum(ctx, results)

    def parameter_gradients(self, ctx: ResidualContext, gradient: Array) -> None:
        self.backward(ctx, gradient, False)

    def backward(self, ctx: ResidualContext, gradient: Array, want_input: bool) -> Array | None:
        results = []
        for branch, stack in self.stacks(ctx.input_shape).items():
            by_outputs = ctx.by_outputs[branch] = {}
            for inner in ctx.inner[branch]:
                inner.method = ctx.method
            results.append(stack.backward(ctx.inner[branch], gradient, want_input, by_outputs))
        return self._sum(ctx, results) if want_input else None

    def _sum(self, ctx: ResidualContext, results: Sequence[Array]) -> Array:
        result = ctx.buffer("input_gradient", results[0].shape)
        ctx.device.xp.add(*results, out=result)
        return result

    def _contexts(self, ctx: ResidualContext, branch: str, stack: LayerStack) -> list[Context]:
        arrays = ctx.parameters, ctx.gradients, ctx.masks, ctx.module_buffers
        return [
            stack.new_context(index, ctx.device, ctx.dtype, *arrays, prefix=f"{branch}.")
            for index in range(len(stack.layers))
        ]


def inner_draw(draw: tuple[int, int, int], branch: str, index: int) -> tuple[int, int, int]:
    """The draw of a layer inside a block, different for each place."""
    key, number, passes = draw
    return key, crc32(f"{number}.{branch}.{index}".encode()), passes


@dataclass(slots=True)
class Place:
    """A layer in a network.

    Attributes
    ----------
    path : str
        "3", or "3.body.0" inside a block.
    stack : LayerStack
        The layers around it.
    index : int
        Its index in the stack.
    ctx : Context or None
        Its part of a pass.
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
    """Yield the layers in order, each block before the layers inside it, with their contexts.

    A block that the pass did not reach has no layers inside.
    """
    for index, layer in enumerate(stack.layers):
        ctx = None if contexts is None else contexts[index]
        yield Place(f"{path}{index}", stack, index, ctx)
        if (ctx is None or isinstance(ctx, ResidualContext)) and isinstance(layer, Residual):
            inner = {} if ctx is None else ctx.inner
            for branch, inside in layer.stacks(stack.shapes[index]).items():
                if ctx is None or branch in inner:
                    yield from walk(inside, inner.get(branch), f"{path}{index}.{branch}.")
