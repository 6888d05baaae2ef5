"""Where scans run: the runs of layers of a network, inside of its residual blocks too."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bppsa_cupy.errors import PlanMismatchError
from bppsa_cupy.jacobians.base import TransposedJacobian
from bppsa_cupy.layers import Layer, Residual
from bppsa_cupy.layers.base import Shape
from bppsa_cupy.layers.residual import walk
from bppsa_cupy.layers.stack import LayerStack
from bppsa_cupy.plan import Chain, Element


@dataclass(frozen=True)
class Run:
    """A maximal run of layers of one section whose Jacobian is one CSR matrix a sample.

    start, stop  layer indices in the section, half open
    elements     the layers with a Jacobian, from the last to the first: a_1, …, a_n
    position     its number among the runs of the whole network, and so that of its chain in a plan
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
    runs       of layers that are no barrier and have an element, from the first to the last
    branches   by a block's index the sections inside of it, by name
    """

    stack: LayerStack
    place: str
    outermost: int | None
    jacobians: tuple[TransposedJacobian | None, ...]
    runs: tuple[Run, ...]
    branches: Mapping[int, Mapping[str, Section]]

    def label(self, index: int) -> str:
        """What a layer is called: "3.body.1 ReLU"."""
        return f"{self.place}{index} {type(self.stack.layers[index]).__name__}"

    def walk(self) -> Iterator[Section]:
        """This section, and those inside of its blocks."""
        yield self
        for branches in self.branches.values():
            for branch in branches.values():
                yield from branch.walk()

    def chain(self, run: Run) -> Chain:
        """What is planned for a run: its Jacobians, from its last layer to its first."""
        elements = []
        for index in run.elements:
            jacobian = self.jacobians[index]
            assert jacobian is not None
            terms = self.vjp_multiply_adds(index)
            item = index if self.outermost is None else self.outermost
            elements.append(Element(self.label(index), jacobian.pattern, jacobian.shared, terms, item))
        return Chain(tuple(elements))

    def vjp_multiply_adds(self, index: int) -> int | None:
        """Those of a layer's VJP of one sample; None where they are its Jacobian's entries."""
        return self.stack.layers[index].vjp_multiply_adds(self.stack.shapes[index])

    def check_own(self, run: Run, planned: Chain) -> None:
        """Raise PlanMismatchError if a layer of the user's own has another pattern than the planned one. The
        library's layers are compared by their descriptions, from which their patterns follow."""
        for index, element in zip(run.elements, planned.elements, strict=True):
            layer, jacobian = self.stack.layers[index], self.jacobians[index]
            if type(layer).__module__.partition(".")[0] != __name__.partition(".")[0]:
                assert jacobian is not None
                if jacobian.pattern != element.pattern:
                    found, theirs = jacobian.pattern, element.pattern
                    raise PlanMismatchError(
                        f"layer {self.label(index)} has the pattern {found.digest[:12]} with {found.nnz} "
                        f"entries, {theirs.digest[:12]} with {theirs.nnz} in the plan; build it again"
                    )

    def scanned(self, input_gradient: bool) -> Iterator[tuple[Run, bool]]:
        """The runs that a way back scans, from the last on, each with whether the gradient by its input is
        needed: it is asked for, or layers with parameters lie before.

        input_gradient  whether the one by the section's input is needed
        """
        for run, layers in self.back():
            if run is not None:
                wanted = self.wants(run.start, input_gradient)
                yield run, wanted
                if not wanted:
                    return
                continue
            for index in reversed(layers):
                wanted = self.wants(index, input_gradient)
                for branch in self.branches.get(index, {}).values():
                    yield from branch.scanned(wanted)
                if not wanted:
                    return

    def back(self) -> Iterator[tuple[Run | None, range]]:
        """The layers from the last to the first: each run with its own, and what lies between them."""
        stop = len(self.stack.layers)
        for run in reversed(self.runs):
            yield None, range(run.stop, stop)
            yield run, range(run.start, run.stop)
            stop = run.start
        yield None, range(stop)

    def wants(self, index: int, input_gradient: bool) -> bool:
        """Whether the gradient by the input of layer `index` is needed: the one by the section's input is, or
        layers with parameters lie before."""
        return input_gradient or self.stack.first_trained < index


@dataclass
class SectionMaker:
    """Makes a network's sections for one mode.

    operators  the transposed Jacobians made so far, which sections of both modes share: layers of equal
               geometry have one, and so one pattern
    """

    training: bool
    operators: dict[Any, TransposedJacobian | None]
    _runs: int = field(default=0, init=False)

    def make(self, stack: LayerStack, place: str = "", outermost: int | None = None) -> Section:
        """The section of a stack; runs are numbered in the order of layers, those inside of a block in its
        place."""
        jacobians: list[TransposedJacobian | None] = []
        runs: list[Run] = []
        branches: dict[int, dict[str, Section]] = {}
        start = 0
        for index, (layer, shape) in enumerate(zip(stack.layers, stack.shapes, strict=False)):
            barrier = layer.is_barrier(self.training) or None in shape
            jacobians.append(None if barrier else self._operator(layer, shape))
            if barrier:
                runs += self._run(jacobians, start, index)
                start = index + 1
            if isinstance(layer, Residual):
                top = index if outermost is None else outermost
                branches[index] = {
                    name: self.make(inner, f"{place}{index}.{name}.", top)
                    for name, inner in layer.stacks(shape).items()
                }
        runs += self._run(jacobians, start, len(stack.layers))
        return Section(stack, place, outermost, tuple(jacobians), tuple(runs), branches)

    def _run(self, jacobians: list[TransposedJacobian | None], start: int, stop: int) -> list[Run]:
        """The run of the layers [start, stop), if there is an element among them."""
        elements = tuple(index for index in reversed(range(start, stop)) if jacobians[index] is not None)
        if not elements:
            return []
        self._runs += 1
        return [Run(start, stop, elements, self._runs - 1)]

    def _operator(self, layer: Layer, shape: Shape) -> TransposedJacobian | None:
        key = type(layer), repr(layer), json.dumps(layer.describe(shape), sort_keys=True)
        if key not in self.operators:
            self.operators[key] = layer.jacobian(shape)
        return self.operators[key]


def has_modes(stack: LayerStack) -> bool:
    """Whether a layer, of those inside of blocks too, is a barrier in one mode alone."""
    return any(place.layer.is_barrier(True) != place.layer.is_barrier(False) for place in walk(stack))
