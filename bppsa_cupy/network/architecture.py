"""The architecture of a network: its layers, their shapes and Jacobians; no arrays, no device."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from bppsa_cupy.arguments import as_integer
from bppsa_cupy.errors import ArgumentError, PlanMismatchError, ShapeError
from bppsa_cupy.jacobians.base import TransposedJacobian
from bppsa_cupy.layers import Layer, Recurrent
from bppsa_cupy.layers.stack import LayerStack, walk, with_masks
from bppsa_cupy.plan import Chain, Element, Plan
from bppsa_cupy.system.units import counted, in_bytes


@dataclass(frozen=True)
class Run:
    """A maximal run of layers whose Jacobian is one CSR matrix per sample.

    Attributes
    ----------
    start, stop : int
        Layer indices, half open.
    elements : tuple of int
        The layers with a Jacobian, from the last to the first: a_1, ..., a_n.
    position : int
        Index among the runs, and of the chain in a plan.
    """

    start: int
    stop: int
    elements: tuple[int, ...]
    position: int


class Architecture(LayerStack):
    """An immutable sequence of layers with its shapes, Jacobians and masks.

    Attributes
    ----------
    layers : tuple of Layer
        The layers in order.
    input_shape : tuple of int
        Shape of one sample; (None, F) accepts any T.
    training : bool
        The mode. Some layers stop a scan in only one mode.
    shapes : tuple of tuple of int
        Shapes of one sample before the first layer and after each layer.

    Raises
    ------
    ShapeError
        If a layer does not accept the output shape of the previous layer.
    """

    def __init__(self, layers: Sequence[Layer], input_shape: Sequence[int], training: bool = True) -> None:
        try:
            sizes = tuple(input_shape)
            steps = sizes[:1] if len(sizes) == 2 and sizes[0] is None else ()
            shape = [as_integer("a network", "a size", size, 1) for size in sizes[len(steps) :]]
        except (TypeError, ShapeError) as cause:
            raise ShapeError(
                f"input_shape is {input_shape!r}: pass a tuple of sizes of at least 1, such as (3, 32, 32)"
            ) from cause
        super().__init__(layers, (*steps, *shape))
        self.training: Final = training
        self._operators: dict[Any, TransposedJacobian | None] = {}

    @cached_property
    def has_modes(self) -> bool:
        """Whether a layer, of those inside of blocks too, is a barrier in one mode alone."""
        return any(place.layer.is_barrier(True) != place.layer.is_barrier(False) for place in walk(self))

    def in_mode(self, training: bool) -> Architecture:
        """The architecture in training or evaluation mode: always the same two, and one where the modes do
        not differ."""
        return self if training == self.training or not self.has_modes else self._other_mode

    @cached_property
    def _other_mode(self) -> Architecture:
        other = Architecture(self.layers, self.input_shape, not self.training)
        other.__dict__.update(_other_mode=self, _operators=self._operators)
        return other

    def check_input(self, shape: tuple[int, ...]) -> None:
        """Raise ShapeError unless a batch may have this shape."""
        wanted = (None, *self.input_shape)
        if len(shape) == len(wanted) and all(
            has == takes or (takes is None and has > 0) for has, takes in zip(shape, wanted, strict=True)
        ):
            return
        sizes = ", ".join("T" if size is None else str(size) for size in self.input_shape)
        raise ShapeError(
            f"the network got input of shape {tuple(shape)}: pass (B, {sizes}) with B"
            f"{' and T' if None in self.input_shape else ''} of at least 1"
        )

    @cached_property
    def recurrent(self) -> dict[int, Recurrent]:
        """The recurrent layers, by index."""
        return {index: layer for index, layer in enumerate(self.layers) if isinstance(layer, Recurrent)}

    @cached_property
    def all_recurrent(self) -> list[Recurrent]:
        """The recurrent layers, in residual blocks too."""
        return [place.layer for place in walk(self) if isinstance(place.layer, Recurrent)]

    def operator(self, layer: Layer, shape: tuple[int, ...]) -> TransposedJacobian | None:
        """The transposed Jacobian of a layer for an input shape: one for all layers of equal geometry, and so
        one pattern. None for one that only reshapes, for a barrier, and where the number of steps is open."""
        if layer.is_barrier(self.training) or None in shape:
            return None
        key = type(layer), repr(layer), json.dumps(layer.describe(shape), sort_keys=True)
        if key not in self._operators:
            self._operators[key] = layer.jacobian(shape)
        return self._operators[key]

    @cached_property
    def jacobians(self) -> tuple[Any, ...]:
        """The `operator` of each layer."""
        return tuple(map(self.operator, self.layers, self.shapes))

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The maximal runs of layers that are no barrier and have an element, in order."""
        runs: list[Run] = []
        start, count = 0, len(self.layers)
        for stop in range(count + 1):
            if (
                stop < count
                and not self.layers[stop].is_barrier(self.training)
                and None not in self.shapes[stop]
            ):
                continue
            elements = tuple(k for k in reversed(range(start, stop)) if self.jacobians[k] is not None)
            if elements:
                runs.append(Run(start, stop, elements, len(runs)))
            start = stop + 1
        return tuple(runs)

    def back(self) -> Iterator[tuple[Run | None, range]]:
        """The layers from the last to the first: each run with its own, and what lies between them."""
        stop = len(self.layers)
        for part in reversed(self.runs):
            yield None, range(part.stop, stop)
            yield part, range(part.start, part.stop)
            stop = part.start
        yield None, range(stop)

    def wants(self, index: int, input_gradient: bool) -> bool:
        """Whether the gradient with respect to the input of layer `index` is needed: the one with respect to
        the network's input is, or layers with parameters lie before."""
        return input_gradient or self.first_trained < index

    @property
    def needs_plan(self) -> bool:
        """Whether a scan needs a plan: some run has more than one element, so there is something to scan."""
        return any(len(part.elements) > 1 for part in self.runs)

    def label(self, index: int) -> str:
        """The name of a layer: "3 ReLU"."""
        return f"{index} {type(self.layers[index]).__name__}"

    def chains(self) -> tuple[Chain, ...]:
        """The chains a plan is made for: one a maximal run of layers, from its last layer to its first."""
        return tuple(
            Chain(
                tuple(
                    Element(
                        self.label(k), self.jacobians[k].pattern, self.jacobians[k].shared,
                        self.layers[k].vjp_multiply_adds(self.shapes[k]), k,
                    )
                    for k in part.elements
                )
            )
            for part in self.runs
        )  # fmt: skip

    def with_masks(self, masks: Mapping[str, Any]) -> Architecture:
        """The architecture with these masks, by the weight's name, in place of all it has: copies of the
        layers. Raises ArgumentError for the name of another parameter, ShapeError for another shape."""
        unknown = [name for name in masks if name not in self.weighted]
        if unknown:
            raise ArgumentError(
                f"the network got a mask for {unknown[0]!r}, which has no masks: pass masks only for "
                f"{', '.join(self.weighted) or 'Conv2d and Linear layers'}"
            )
        return Architecture(with_masks(self.layers, masks), self.input_shape, self.training)

    def describe(self) -> dict[str, Any]:
        """The network's geometry as JSON holds it: what a checkpoint is compared by, whatever the mode."""
        return {"input_shape": list(self.input_shape), "layers": self.describe_layers()}

    def describe_scans(self) -> dict[str, Any]:
        """The facts that a plan must match: the geometry, and the mode if the runs depend on it."""
        mode = {"mode": "training" if self.training else "evaluation"} if self.has_modes else {}
        return {**mode, **self.describe()}

    def check_plan(self, plan: Plan) -> None:
        """Raise PlanMismatchError, naming what differs, unless `plan` was made for this architecture."""
        plan.check(self.describe_scans())
        for made, part in zip(plan.chains, self.runs, strict=True):
            for index, element in zip(part.elements, made.chain.elements, strict=True):
                # The library's layers are compared by their descriptions, from which their patterns follow.
                if type(self.layers[index]).__module__.partition(".")[0] == __name__.partition(".")[0]:
                    continue
                pattern, expected = self.jacobians[index].pattern, element.pattern
                if pattern != expected:
                    raise PlanMismatchError(
                        f"the pattern of layer {self.label(index)} is {pattern.digest[:12]} with "
                        f"{pattern.nnz} entries, but {expected.digest[:12]} with {expected.nnz} entries in "
                        "the plan: build the plan again"
                    )


def summarize(architecture: Architecture, dtype: np.dtype) -> str:
    """A table with a line per layer, and the totals.

    Layers of a residual block follow their block. Indices and row pointers of a layer's Jacobians count once.
    """
    rows, entries, size = [("layer", "output", "parameters", "Jacobian nnz", "bytes")], 0, 0
    for place in walk(architecture):
        layer, shape = place.layer, place.input_shape
        operator, steps, pattern = architecture.operator(layer, shape), 1, None
        if isinstance(layer, Recurrent):
            pattern, steps = layer.step_pattern, (shape[0] or 0) * layer.num_layers * layer.directions
        elif operator is not None:
            pattern = operator.pattern
        parameters = sum(map(math.prod, layer.parameter_shapes().values()))
        nnz = nbytes = "–"
        if pattern is not None:
            count = steps * pattern.nnz
            layer_bytes = count * dtype.itemsize + pattern.indices.nbytes + pattern.indptr.nbytes
            entries, size = entries + count, size + layer_bytes
            nnz = ("" if steps == 1 else f"{steps:,} × " if steps else "T × ") + f"{pattern.nnz:,}"
            nbytes = in_bytes(layer_bytes) if steps else "–"
        name = f"{'  ' * (place.path.count('.') // 2)}{place.path} {type(layer).__name__}"
        rows.append((name, _text(place.output_shape), f"{parameters:,}" if parameters else "–", nnz, nbytes))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{dtype}, input {_text(architecture.input_shape)}"]
    for name, shown, *numbers in rows:
        cells = [name.ljust(widths[0]), shown.ljust(widths[1])]
        cells += (number.rjust(width) for number, width in zip(numbers, widths[2:], strict=True))
        lines.append("  ".join(cells).rstrip())
    learned = sum(map(math.prod, architecture.parameter_shapes().values()))
    masked = sum(int((~mask).sum()) for mask in architecture.masks.values())
    held = f", of which masks hold {masked:,} at 0" if masked else ""
    lines.append(f"{counted(learned, 'parameter')}, {in_bytes(learned * dtype.itemsize)}{held}")
    total = f"{counted(entries, 'entry', 'entries')}, {in_bytes(size)}"
    if None in architecture.input_shape:
        total = "as many as there are steps, which the input's shape leaves open"
    return "\n".join([*lines, f"Jacobians of one sample: {total}"])


def _text(shape: tuple[int | None, ...]) -> str:
    return " × ".join("T" if size is None else str(size) for size in shape)
