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
                raise ShapeError(
                    f"{layer!r} got input {shapes[-1]}, but needs a fixed number of time steps: pass an "
                    "input_shape with an integer instead of None",
                    str(index),
                ) from error
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
        """Masks by weight name, bool: True where a weight is kept."""
        return by_name(layer.masks() for layer in self.layers)

    @cached_property
    def maskable(self) -> tuple[str, ...]:
        """Names of the weights that accept a mask."""
        return self._names(layer.maskable() for layer in self.layers)

    def kept(self, device: str) -> dict[str, np.ndarray]:
        """Kept positions, flattened and ascending, of weights whose layer uses a list of them."""
        return by_name(layer.kept(shape, device) for layer, shape in self._placed)

    @property
    def _placed(self) -> Iterable[tuple[Layer, Shape]]:
        """The layers, each with the shape of its input."""
        return zip(self.layers, self.shapes[:-1], strict=True)

    def layers_with_masks(self, masks: Mapping[str, Any]) -> list[Layer]:
        """Copies of the layers with these masks, by weight name, instead of the present ones."""
        return with_masks(self.layers, masks)

    def describe_layers(self) -> list[dict[str, Any]]:
        """The geometry of each layer as JSON values."""
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
        """A new context of layer `index`, on arrays named `prefix` plus the names of the stack."""
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

    @staticmethod
    def _names(of_layers: Iterable[Iterable[str]]) -> tuple[str, ...]:
        return tuple(f"{index}.{name}" for index, names in enumerate(of_layers) for name in names)


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
        of_layer = {name: masks[start + name] for name in layer.maskable() if start + name in masks}
        result.append(layer.with_masks(of_layer))
    return result


def by_name(of_layers: Iterable[Mapping[str, Value]]) -> dict[str, Value]:
    """Values of all layers in one dict: the layer's index, then the layer's own name."""
    return {
        f"{index}.{name}": value for index, values in enumerate(of_layers) for name, value in values.items()
    }


def _checked_layers(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    checked = as_list("a network", "layers", layers, "a list of layers, such as [bp.ReLU()]")
    for index, layer in enumerate(checked):
        if not isinstance(layer, Layer):
            raise ShapeError(f"{layer!r} is not a layer: pass layer objects, such as bp.ReLU()", str(index))
    return tuple(checked)
