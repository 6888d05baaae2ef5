"""Layers one after another, for one shape of input: their shapes, names, and passes through them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, TypeVar

import numpy as np

from bppsa_cupy.arguments import as_list
from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.base import Context, Layer, Shape

Value = TypeVar("Value")
#: A layer's index -> what its random numbers follow from.
Draws = Callable[[int], tuple[int, int, int]]


class LayerStack:
    """Layers in order; it never changes.

    layers       Layer objects
    input_shape  of one sample
    shapes       of one sample before the first layer and after each one
    first_trained  the index of the first layer with parameters, or the number of layers where none has any:
                 those after it need the gradients by their inputs

    Names of parameters, buffers and masks are the layers' own after their indices: "0.weight". Raises
    ShapeError, naming the place, where a layer does not take what the one before it gives.
    """

    def __init__(self, layers: Sequence[Layer], input_shape: Shape) -> None:
        self.layers: Final = _checked_layers(layers)
        self.input_shape: Final = input_shape
        self.shapes: Final = self._infer_shapes()
        trained = (index for index, layer in enumerate(self.layers) if layer.parameter_shapes())
        self.first_trained: Final = next(trained, len(self.layers))

    def _infer_shapes(self) -> tuple[Shape, ...]:
        shapes = [self.input_shape]
        for index, layer in enumerate(self.layers):
            try:
                shapes.append(layer.output_shape(shapes[-1]))
            except ShapeError as error:
                raise error.at(str(index)) from error
            except TypeError as error:
                if None not in shapes[-1]:
                    raise
                raise ShapeError(f"{layer!r} got {shapes[-1]}: it needs T to be given", str(index)) from error
        return tuple(shapes)

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
        return self._names(layer.state_names() for layer in self.layers)

    @property
    def masks(self) -> dict[str, np.ndarray]:
        """The masks of weights by parameter name, bool: True where a weight is kept; none where all are."""
        return by_name(layer.masks() for layer in self.layers)

    @cached_property
    def maskable(self) -> tuple[str, ...]:
        """The names of the weights that take a mask."""
        return self._names(layer.maskable() for layer in self.layers)

    def kept(self, device: str) -> dict[str, np.ndarray]:
        """The weights that go by a list of what their masks keep, on the device of that name, with the kept
        positions in each, flattened, ascending."""
        return by_name(layer.kept(shape, device) for layer, shape in self._placed)

    @property
    def _placed(self) -> Iterable[tuple[Layer, Shape]]:
        """The layers, each with the shape of its input."""
        return zip(self.layers, self.shapes[:-1], strict=True)

    def layers_with_masks(self, masks: Mapping[str, Any]) -> list[Layer]:
        """Copies of the layers with these masks, by the weight's name, in place of all they have."""
        return with_masks(self.layers, masks)

    def describe_layers(self) -> list[dict[str, Any]]:
        """Each layer's geometry as JSON holds it."""
        return [layer.describe(shape) for layer, shape in self._placed]

    # ---- passes ----

    def new_context(
        self,
        index: int,
        device: Device,
        dtype: np.dtype,
        parameters: Mapping[str, Array],
        gradients: Mapping[str, Array],
        masks: Mapping[str, Array],
        buffers: Mapping[str, Array],
        prefix: str = "",
    ) -> Context:
        """A context of layer `index`, of no pass yet, on arrays that are named `prefix` and the stack's
        names."""
        layer, start = self.layers[index], f"{prefix}{index}."
        names = layer.parameter_shapes()
        return layer.context(
            device=device,
            dtype=dtype,
            parameters={name: parameters[start + name] for name in names},
            gradients={name: gradients[start + name] for name in names},
            masks={name: masks[start + name] for name in layer.masks()},
            input_shape=self.shapes[index],
            module_buffers={name: buffers[start + name] for name in layer.initial_buffers()},
        )

    def forward(
        self, contexts: Sequence[Context], x: Array, training: bool, draws: Draws, layers: range | None = None
    ) -> Array:
        """The output of `layers`, by default all, for `x`, the input of the first; fills their contexts.
        Raises what the layers raise, a ShapeError with its place."""
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
        """Equation 3, a layer at a time, over `layers`, by default all, from the gradient by the last one's
        output; the gradient by the first one's input where it is wanted, or needed by a layer before.

        by_outputs  takes the gradient by each layer's output
        """
        result: Array | None = gradient
        for index in reversed(range(len(self.layers)) if layers is None else layers):
            by_outputs[index] = result
            wanted = want_input or self.first_trained < index
            result = self.layers[index].backward(contexts[index], result, wanted)
            if result is None:
                break
        return result

    @staticmethod
    def _names(of_layers: Iterable[Iterable[str]]) -> tuple[str, ...]:
        return tuple(f"{index}.{name}" for index, own in enumerate(of_layers) for name in own)


def forward_through(
    layer: Layer, ctx: Context, x: Array, training: bool, draw: tuple[int, int, int], place: str
) -> Array:
    """A layer's output in a pass. Raises what it raises, a ShapeError with its place."""
    ctx.training, ctx.draw = training, draw
    try:
        return layer.forward(ctx, x)
    except ShapeError as error:
        raise error.at(place) from error


def backward_input_first(
    layer: Layer, ctx: Context, gradient: Array, want_input: bool, later: list[Launch]
) -> Array | None:
    """`layer.backward`, but calls that write the layer's parameter gradients are appended to `later` where
    they share no work with the gradient by the input. Both ways give the same bits."""
    if type(layer).backward is not Layer.backward:
        return layer.backward(ctx, gradient, want_input)
    later.append(partial(layer.parameter_gradients, ctx, gradient))
    return layer.vjp(ctx, gradient) if want_input else None


def with_masks(layers: Sequence[Layer], masks: Mapping[str, Any], prefix: str = "") -> list[Layer]:
    """Copies of layers with these masks, by `prefix`, the layer's index and the weight's name."""
    result = []
    for index, layer in enumerate(layers):
        start = f"{prefix}{index}."
        own = {name: masks[start + name] for name in layer.maskable() if start + name in masks}
        result.append(layer.with_masks(own))
    return result


def by_name(of_layers: Iterable[Mapping[str, Value]]) -> dict[str, Value]:
    """What each layer has by its own names, by the stack's: the layer's index comes first."""
    return {f"{index}.{name}": value for index, own in enumerate(of_layers) for name, value in own.items()}


def _checked_layers(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    found = as_list("a network", "layers", layers, "a list of layers, as [bp.ReLU()]")
    for index, layer in enumerate(found):
        if not isinstance(layer, Layer):
            raise ShapeError(
                f"{layer!r} is no layer: a network takes layer objects, as bp.ReLU()", str(index)
            )
    return tuple(found)
