"""Layers one after another and residual blocks (He et al. 2016): shapes, names, and passes through them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, repeat
from types import MappingProxyType
from typing import Any, Final, TypeVar
from zlib import crc32

import numpy as np

from bppsa_cupy.arguments import as_list
from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.jacobians.base import TransposedJacobian
from bppsa_cupy.layers.base import Context, Layer, Shape
from bppsa_cupy.layers.weighted import Weighted
from bppsa_cupy.records.record import JacobianRecord

Value = TypeVar("Value")
#: A layer's index -> what its random numbers follow from.
Draws = Callable[[int], tuple[int, int, int]]


class LayerStack:
    """An immutable sequence of layers.

    Parameters and masks are named by the layer's index and their own name: "0.weight".

    Attributes
    ----------
    layers : tuple of Layer
        The layers in order.
    input_shape : tuple of int
        Shape of one sample.
    shapes : tuple of tuple of int
        Shapes of one sample before the first layer and after each layer.
    first_trained : int
        Index of the first layer with parameters, or the number of layers.

    Raises
    ------
    ShapeError
        If a layer does not accept the output shape of the previous layer.
    """

    def __init__(self, layers: Sequence[Layer], input_shape: Shape) -> None:
        checked = as_list("a network", "layers", layers, "a list of layers, such as [bp.ReLU()]")
        shapes = [input_shape]
        for index, layer in enumerate(checked):
            if not isinstance(layer, Layer):
                raise ShapeError(
                    f"{layer!r} is not a layer: pass layer objects, such as bp.ReLU()", str(index)
                )
            try:
                shapes.append(layer.output_shape(shapes[-1]))
            except ShapeError as error:
                raise error.at(str(index)) from error
            except TypeError as error:
                if None not in shapes[-1]:
                    raise
                raise ShapeError(
                    f"{layer!r} got input {shapes[-1]}, but needs a fixed number of time steps: pass an "
                    "input_shape with an integer instead of None",
                    str(index),
                ) from error
        self.layers: Final = tuple(checked)
        self.input_shape: Final = input_shape
        self.shapes: Final = tuple(shapes)
        trained = (index for index, layer in enumerate(self.layers) if layer.parameter_shapes())
        self.first_trained: Final = next(trained, len(self.layers))

    @property
    def output_shape(self) -> Shape:
        """The shape of the output, without the batch."""
        return self.shapes[-1]

    # ---- what the layers hold, by name ----

    def parameter_shapes(self) -> dict[str, Shape]:
        """The shapes of all parameters by name, as PyTorch's Sequential names them: "0.weight"."""
        return by_name(layer.parameter_shapes() for layer in self.layers)

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Fresh parameters by name, float64."""
        return by_name(layer.initialize(generator) for layer in self.layers)

    def initial_buffers(self) -> dict[str, np.ndarray]:
        """Fresh buffers by name: "1.running_mean"."""
        return by_name(layer.initial_buffers() for layer in self.layers)

    @cached_property
    def state_names(self) -> tuple[str, ...]:
        """The names of parameters and buffers, in the order of PyTorch's state dict."""
        return tuple(
            f"{place.path}.{name}"
            for place in walk(self)
            if not isinstance(place.layer, Residual)
            for name in (*place.layer.parameter_shapes(), *place.layer.initial_buffers())
        )

    @cached_property
    def weighted(self) -> dict[str, tuple[Weighted, Shape]]:
        """The layers that accept a mask and their input shapes, by the names of their weights."""
        return {
            f"{place.path}.weight": (place.layer, place.input_shape)
            for place in walk(self)
            if isinstance(place.layer, Weighted)
        }

    @property
    def masks(self) -> dict[str, np.ndarray]:
        """Masks by weight name, bool: True where a weight is kept."""
        return {name: layer.mask for name, (layer, _) in self.weighted.items() if layer.mask is not None}

    def kept_positions(self, device: str) -> dict[str, np.ndarray]:
        """Kept positions, flattened and ascending, of weights whose layer uses a list of them."""
        lists = {name: layer.lists(shape) for name, (layer, shape) in self.weighted.items()}
        return {
            name: weights.index for name, weights in lists.items() if weights and weights.is_quicker(device)
        }

    def describe_layers(self) -> list[dict[str, Any]]:
        """The geometry of each layer as JSON values."""
        return [layer.describe(shape) for layer, shape in zip(self.layers, self.shapes[:-1], strict=True)]

    # ---- passes ----

    def new_context(
        self,
        index: int,
        device: Device,
        dtype: np.dtype,
        parameters: Mapping[str, Array],
        gradients: Mapping[str, Array],
        buffers: Mapping[str, Array],
        prefix: str = "",
    ) -> Context:
        """A new context of layer `index`, on arrays named `prefix` plus the names of the stack."""
        layer, start = self.layers[index], f"{prefix}{index}."
        names = layer.parameter_shapes()
        return layer.context(
            device=device,
            dtype=dtype,
            parameters={name: parameters[start + name] for name in names},
            gradients={name: gradients[start + name] for name in names},
            input_shape=self.shapes[index],
            module_buffers={name: buffers[start + name] for name in layer.initial_buffers()},
        )

    def forward(
        self, contexts: Sequence[Context], x: Array, training: bool, draws: Draws, layers: range | None = None
    ) -> Array:
        """Return the output of `layers` (default: all) for the input `x`; fill their contexts."""
        for index in range(len(self.layers)) if layers is None else layers:
            x = forward_through(self.layers[index], contexts[index], x, training, draws(index), str(index))
        return x

    def backward(
        self,
        contexts: Sequence[Context],
        gradient: Array,
        want_input: bool,
        by_outputs: dict[int, Array],
        layers: range | None = None,
    ) -> Array | None:
        """Run `layers` (default: all) backwards, and return the gradient with respect to their input.

        The result is None if it is neither wanted nor needed by an earlier layer. `by_outputs` receives the
        gradient with respect to each layer's output.
        """
        result: Array | None = gradient
        for index in reversed(range(len(self.layers)) if layers is None else layers):
            by_outputs[index] = result
            wanted = want_input or self.first_trained < index
            result = self.layers[index].backward(contexts[index], result, wanted)
            if result is None:
                break
        return result


def forward_through(
    layer: Layer, ctx: Context, x: Array, training: bool, draw: tuple[int, int, int], place: str
) -> Array:
    """The output of a layer in a pass. A ShapeError gets the layer's place."""
    ctx.training, ctx.draw = training, draw
    try:
        return layer.forward(ctx, x)
    except ShapeError as error:
        raise error.at(place) from error


def backward_input_first(
    layer: Layer, ctx: Context, gradient: Array, want_input: bool, later: list[Launch]
) -> Array | None:
    """`layer.backward`, with parameter gradients appended to `later` where they share no work.

    Both orders give the same bits.
    """
    if type(layer).backward is not Layer.backward:
        return layer.backward(ctx, gradient, want_input)
    later.append(partial(layer.parameter_gradients, ctx, gradient))
    return layer.vjp(ctx, gradient) if want_input else None


def with_masks(layers: Sequence[Layer], masks: Mapping[str, Any], prefix: str = "") -> list[Layer]:
    """Copies of layers with these masks, by `prefix`, layer index and weight name."""
    result = []
    for index, layer in enumerate(layers):
        start = f"{prefix}{index}."
        if isinstance(layer, Weighted):
            layer = layer.with_mask(masks.get(f"{start}weight"))
        elif isinstance(layer, Residual):
            branches = layer.branches.items()
            layer = Residual(**{key: with_masks(inside, masks, f"{start}{key}.") for key, inside in branches})
        result.append(layer)
    return result


def by_name(of_layers: Iterable[Mapping[str, Value]]) -> dict[str, Value]:
    """Values of all layers in one dict: the layer's index, then the layer's own name."""
    return {
        f"{index}.{name}": value for index, values in enumerate(of_layers) for name, value in values.items()
    }


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
    gradient : array or None
        Gradient with respect to its output, of the last backward pass.
    """

    path: str
    stack: LayerStack
    index: int
    ctx: Context | None
    gradient: Array = None

    @property
    def layer(self) -> Layer:
        return self.stack.layers[self.index]

    @property
    def input_shape(self) -> Shape:
        return self.stack.shapes[self.index]

    @property
    def output_shape(self) -> Shape:
        return self.stack.shapes[self.index + 1]


def walk(
    stack: LayerStack,
    contexts: Sequence[Context] | None = None,
    gradients: Mapping[int, Array] = MappingProxyType({}),
    path: str = "",
) -> Iterator[Place]:
    """Yield the layers in order, each block before the layers inside it, with contexts and gradients.

    A block that the pass did not reach has no layers inside.
    """
    every: Iterable[Context | None] = repeat(None) if contexts is None else contexts
    for index, (layer, ctx) in enumerate(zip(stack.layers, every, strict=False)):
        yield Place(f"{path}{index}", stack, index, ctx, gradients.get(index))
        if isinstance(layer, Residual):
            inner, by_outputs = (ctx.inner, ctx.by_outputs) if isinstance(ctx, ResidualContext) else ({}, {})
            for branch, inside in layer.stacks(stack.shapes[index]).items():
                if ctx is None or branch in inner:
                    prefix = f"{path}{index}.{branch}."
                    yield from walk(inside, inner.get(branch), by_outputs.get(branch, {}), prefix)


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

    def every(self) -> Iterator[Context]:
        yield self
        for ctx in chain.from_iterable(self.inner.values()):
            yield from ctx.every()

    def let_go(self) -> None:
        super().let_go()
        self.by_outputs.clear()


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

    A scan over layers stops at a residual block. The backward pass computes the VJP of the block, the sum of
    the VJPs of body and shortcut. The Jacobian of a block is not formed: with two 3×3 convolutions of C
    channels it would have 25 C entries per row.

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
        """Return a dict with the layers and shapes of each branch. Raises ShapeError if they do not fit."""
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
        """Return {"body": [...], "shortcut": [...]} with the layers, so the dict is not JSON-serialisable."""
        return {name: list(layers) for name, layers in self.branches.items()}

    def describe(self, input_shape: Shape) -> dict[str, Any]:
        branches = {name: stack.describe_layers() for name, stack in self.stacks(input_shape).items()}
        return {"type": type(self).__name__, "input_shape": list(input_shape), **branches}

    def output_shape(self, input_shape: Shape) -> Shape:
        return self.stacks(input_shape)["body"].output_shape

    def is_barrier(self, training: bool) -> bool:
        return True

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

    def _by_name(self, of_layer: Callable[[Layer], Mapping[str, Any]]) -> dict[str, Any]:
        """Return the values of `of_layer` by the names of the block."""
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
                arrays = ctx.parameters, ctx.gradients, ctx.module_buffers
                ctx.inner[branch] = [
                    stack.new_context(index, ctx.device, ctx.dtype, *arrays, prefix=f"{branch}.")
                    for index in range(len(stack.layers))
                ]
            for inner in ctx.inner[branch]:
                inner.lengths, inner.resets = ctx.lengths, ctx.resets
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


def inner_draw(draw: tuple[int, int, int], branch: str, index: int) -> tuple[int, int, int]:
    """The draw of a layer inside a block, different for each place."""
    key, number, passes = draw
    return key, crc32(f"{number}.{branch}.{index}".encode()), passes


def layer_records(
    layer: Layer,
    ctx: Context,
    shape: Shape,
    operator: TransposedJacobian | None,
    batch: int,
    *,
    index: int = 0,
    path: str = "",
    gradient: Array | None = None,
) -> Iterator[JacobianRecord]:
    """Yield the records of a layer at a finished forward pass.

    Parameters
    ----------
    layer, ctx : Layer, Context
        The layer and its part of the pass.
    shape : tuple of int
        Shape of its input, without the batch.
    operator : TransposedJacobian or None
        Its transposed Jacobian for that shape.
    batch : int
        Batch size.
    index, path : int, str
        The place of the layer in records.
    gradient : array or None
        Gradient with respect to its output, of the last backward pass.
    """
    geometry, device = layer.describe(shape), ctx.device
    place: dict[str, Any] = {"geometry": geometry, "path": path}
    lengths = None if ctx.lengths is None else np.array(device.to_host(ctx.lengths))
    for name, direction, pattern, every in layer.step_jacobians(ctx):
        for step, data in enumerate(every):
            yield JacobianRecord(index, name, pattern, data, step, direction, lengths=lengths, **place)
    if operator is None:
        return
    nnz = operator.pattern.nnz
    values = device.empty((nnz,) if operator.shared else (nnz, batch), ctx.dtype)
    operator.fill(device, ctx.parameters, ctx.saved, values)
    norm = None if gradient is None else float(device.xp.linalg.norm(gradient))
    yield JacobianRecord(index, type(layer).__name__, operator.pattern, values, gradient_norm=norm, **place)
