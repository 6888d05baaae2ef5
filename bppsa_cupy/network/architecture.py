"""The architecture of a network: its layers, their shapes and Jacobians; no arrays, no device."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np

from bppsa_cupy.errors import PlanError, ShapeError
from bppsa_cupy.layers import Layer, Recurrent
from bppsa_cupy.layers.weighted import Weighted
from bppsa_cupy.plan import Chain, Element, Plan, fingerprint

Value = TypeVar("Value")


@dataclass(frozen=True)
class Run:
    """A maximal run of layers whose Jacobian is one CSR matrix a sample.

    start, stop  layer indices, half open
    elements     the layers with a Jacobian, from the last to the first: a_1, …, a_n
    """

    start: int
    stop: int
    elements: tuple[int, ...]


class Architecture:
    """Layers one after another, and what follows from their geometry; it never changes.

    layers       Layer objects in order
    input_shape  of one sample; (None, F) takes sequences of any T
    training     the mode: what is a barrier in one may be an element of the scan in the other
    shapes       of one sample before the first layer and after each one

    Raises ShapeError where a layer does not take what the one before it gives.
    """

    def __init__(self, layers: Sequence[Layer], input_shape: Sequence[int], training: bool = True) -> None:
        self.layers: Final = _checked_layers(layers)
        self.input_shape: Final = _checked_shape(input_shape)
        self.training: Final = training
        self.shapes: Final = self._infer_shapes()

    def _infer_shapes(self) -> tuple[tuple[int, ...], ...]:
        shapes = [self.input_shape]
        for index, layer in enumerate(self.layers):
            try:
                shapes.append(layer.output_shape(shapes[-1]))
            except ShapeError as error:
                raise ShapeError(f"layer {index}: {error}") from error
            except TypeError as error:
                if None not in shapes[-1]:
                    raise
                raise ShapeError(
                    f"layer {index}: {layer!r} got {shapes[-1]}: it needs T to be given"
                ) from error
        return tuple(shapes)

    @cached_property
    def has_modes(self) -> bool:
        """Whether the runs of the two modes differ."""
        return any(layer.is_barrier(True) != layer.is_barrier(False) for layer in self.layers)

    def in_mode(self, training: bool) -> Architecture:
        """The architecture in training or evaluation mode: always the same two, and one where the modes do
        not differ."""
        return self if training == self.training or not self.has_modes else self._other_mode

    @cached_property
    def _other_mode(self) -> Architecture:
        other = Architecture(self.layers, self.input_shape, not self.training)
        other.__dict__.update(_other_mode=self, _operators=self._operators)
        return other

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the output, without the batch."""
        return self.shapes[-1]

    def check_input(self, shape: tuple[int, ...]) -> None:
        """Raise ShapeError unless a batch may have this shape."""
        wanted = (None, *self.input_shape)
        if len(shape) == len(wanted) and all(
            has == takes or (takes is None and has > 0) for has, takes in zip(shape, wanted, strict=True)
        ):
            return
        sizes = ", ".join("T" if size is None else str(size) for size in self.input_shape)
        raise ShapeError(
            f"the network got input of shape {tuple(shape)}: it takes (B, {sizes}) with B"
            f"{' and T' if None in self.input_shape else ''} of at least 1"
        )

    def initial_buffers(self) -> dict[str, np.ndarray]:
        """Fresh buffers by name: "1.running_mean"."""
        return _by_name(layer.initial_buffers() for layer in self.layers)

    @cached_property
    def state_names(self) -> tuple[str, ...]:
        """The names of parameters and buffers, in the order of PyTorch's state dict."""
        return tuple(
            f"{index}.{name}" for index, layer in enumerate(self.layers) for name in layer.state_names()
        )

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all parameters by name, as PyTorch's Sequential names them: "0.weight"."""
        return _by_name(layer.parameter_shapes() for layer in self.layers)

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Fresh parameters by name, float64."""
        return _by_name(layer.initialize(generator) for layer in self.layers)

    @cached_property
    def first_trained(self) -> int:
        """The index of the first layer with parameters, or the number of layers where none has any: those
        behind it need the gradients by their inputs."""
        trained = (index for index, layer in enumerate(self.layers) if layer.parameter_shapes())
        return next(trained, len(self.layers))

    @cached_property
    def recurrent(self) -> dict[int, Recurrent]:
        """The recurrent layers, by index."""
        return {index: layer for index, layer in enumerate(self.layers) if isinstance(layer, Recurrent)}

    @cached_property
    def weighted(self) -> dict[int, Weighted]:
        """The layers whose weight takes a mask, by index."""
        return {index: layer for index, layer in enumerate(self.layers) if isinstance(layer, Weighted)}

    @cached_property
    def jacobians(self) -> tuple[Any, ...]:
        """Each layer's transposed Jacobian operator; None for one that only reshapes, for a barrier, and
        where the number of steps is left open."""
        pairs = zip(self.layers, self._operators, strict=True)
        return tuple(None if layer.is_barrier(self.training) else operator for layer, operator in pairs)

    @cached_property
    def _operators(self) -> tuple[Any, ...]:
        """The operators of `jacobians`, those of barriers too; both modes share them and their patterns."""
        return tuple(
            None if None in shape else layer.jacobian(shape)
            for layer, shape in zip(self.layers, self.shapes[:-1], strict=True)
        )

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The maximal runs of layers that are no barrier and have an element, from the first to the last.

        A layer over an open number of steps has no Jacobian, and is a barrier.
        """
        runs: list[Run] = []
        pairs = zip(self.layers, self.shapes[:-1], strict=True)
        barriers = [
            index
            for index, (layer, shape) in enumerate(pairs)
            if layer.is_barrier(self.training) or None in shape
        ]
        starts = [0, *(index + 1 for index in barriers)]
        for start, stop in zip(starts, [*barriers, len(self.layers)], strict=True):
            elements = [i for i in reversed(range(start, stop)) if self.jacobians[i] is not None]
            if elements:
                runs.append(Run(start, stop, tuple(elements)))
        return tuple(runs)

    @property
    def needs_plan(self) -> bool:
        """Whether a scan needs a plan: some run has more than one element, so there is something to scan."""
        return any(len(run.elements) > 1 for run in self.runs)

    def chains(self) -> tuple[Chain, ...]:
        """The chains a plan is made for: one a maximal run of layers, from its last layer to its first."""
        return tuple(
            Chain(
                tuple(
                    Element(
                        f"{index} {type(self.layers[index]).__name__}",
                        self.jacobians[index].pattern,
                        self.jacobians[index].shared,
                        self.layers[index].vjp_multiply_adds(self.shapes[index]),
                        index,
                    )
                    for index in run.elements
                )
            )
            for run in self.runs
        )

    @property
    def masks(self) -> dict[str, np.ndarray]:
        """The masks of weights by parameter name, bool: True where a weight is kept; none where all are."""
        return _by_name(layer.masks() for layer in self.layers)

    def with_masks(self, masks: Mapping[str, Any]) -> Architecture:
        """The architecture with these masks, by the weight's name, in place of all it has: copies of the
        layers. Raises ShapeError for a name that is no weight of such a layer, or a mask of another shape."""
        known = [f"{index}.weight" for index in self.weighted]
        unknown = [name for name in masks if name not in known]
        if unknown:
            raise ShapeError(
                f"the network got a mask of {unknown[0]!r}: it takes masks of {', '.join(known) or 'nothing'}"
            )
        layers = list(self.layers)
        for index, layer in self.weighted.items():
            layers[index] = layer.with_mask(masks.get(f"{index}.weight"))
        return Architecture(layers, self.input_shape, self.training)

    def describe(self) -> dict[str, Any]:
        """The network's geometry as JSON holds it: what a checkpoint is compared by, whatever the mode."""
        return {
            "input_shape": list(self.input_shape),
            "layers": [
                {
                    "type": type(layer).__name__,
                    "input_shape": list(shape),
                    **{
                        name: value
                        for name, value in layer.config().items()
                        if name not in layer.beside_geometry
                    },
                    **{
                        f"{name}_mask": hashlib.sha256(np.packbits(mask).tobytes()).hexdigest()
                        for name, mask in layer.masks().items()
                    },
                }
                for layer, shape in zip(self.layers, self.shapes[:-1], strict=True)
            ],
        }

    def describe_scans(self) -> dict[str, Any]:
        """What a plan is compared by: the geometry, with the mode where the runs depend on it."""
        mode = {"mode": "training" if self.training else "evaluation"} if self.has_modes else {}
        return {**mode, **self.describe()}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of `describe_scans`: the geometry, the masks and the mode."""
        return fingerprint(self.describe_scans())

    def check_plan(self, plan: Plan) -> None:
        """Raise PlanMismatchError, naming what differs, unless `plan` was made for this architecture."""
        if not isinstance(plan, Plan):
            raise PlanError(
                f"use got a {type(plan).__name__}: it takes a Plan, net.plan() or Plan.load(path)"
            )
        plan.check(self.describe_scans())


def _by_name(of_layers: Iterable[Mapping[str, Value]]) -> dict[str, Value]:
    """What each layer has by its own names, by the network's: the layer's index comes first."""
    return {f"{index}.{name}": value for index, own in enumerate(of_layers) for name, value in own.items()}


def _checked_layers(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    for index, layer in enumerate(layers):
        if not isinstance(layer, Layer):
            raise ShapeError(f"layer {index} is {layer!r}: a network takes layer objects, as bp.ReLU()")
    return tuple(layers)


def _checked_shape(input_shape: Sequence[int]) -> tuple[int, ...]:
    try:
        sizes = tuple(input_shape)
        steps = sizes[:1] if len(sizes) == 2 and sizes[0] is None else ()
        shape = tuple(operator.index(size) for size in sizes[len(steps) :])
    except TypeError:
        steps, shape = (), (0,)
    if min(shape, default=1) < 1:
        raise ShapeError(f"input_shape is {input_shape!r}: it takes sizes of at least 1, as (3, 32, 32)")
    return (*steps, *shape)
