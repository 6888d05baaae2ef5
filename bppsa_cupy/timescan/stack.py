"""All inner layers and directions of one recurrent layer, for one batch size and number of steps."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.devices.base import Graphs
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.timescan import products
from bppsa_cupy.timescan.chunked import TimeScan
from bppsa_cupy.timescan.direction import Direction, make_directions
from bppsa_cupy.timescan.exchange import Gather, Scatter
from bppsa_cupy.timescan.forward import TimeForward
from bppsa_cupy.timescan.sizes import StackSize


class DirectionPass(Protocol):
    """A pass of one direction over time, bound to its arrays."""

    def __call__(self) -> None: ...

    @property
    def description(self) -> str:
        """What the latest call ran, and why."""


class StackPasses(abc.ABC):
    """The passes of a recurrent layer, as the layer calls them; nothing is allocated in one.

    lengths      (B,) int64, where each sample ends
    ends_early   whether a sample may end before the last step; set with `lengths`
    initial_states, boundaries  (S, B), one a direction, in PyTorch's order: the states before the first step,
                 and the gradients by those after the last one
    final_states, state_gradients  (S, B), likewise: the states after the last step of the latest `forward`,
                 and the gradients by the initial states of the latest `backward`

    A caller fills `lengths` and the initial states, and the input by `take`; then `forward`; then, for the
    way back, the boundaries and the gradient by the output; `backward`; `weight_gradients` and
    `input_gradient` in either order, or neither. Sequences of the caller's are those of `exchange`.
    """

    device: Device
    sizes: StackSize
    lengths: Array
    ends_early: bool
    initial_states: list[Array]
    boundaries: list[Array]
    final_states: list[Array]
    state_gradients: list[Array]
    #: What the device keeps of its passes (`Device.repeat`); None where they wait for something, as
    #: iterations for their error and ranks for one another.
    graphs: Graphs | None = None

    @property
    @abc.abstractmethod
    def stacks(self) -> Sequence[Stack]:
        """The stacks of the groups of samples."""

    @abc.abstractmethod
    def take(self, x: Array) -> None:
        """Take the input, (B, T, F); what lies after a sample's end becomes 0."""

    @abc.abstractmethod
    def forward(self) -> None:
        """Every state of every inner layer and direction."""

    @abc.abstractmethod
    def put(self, out: Array) -> None:
        """Write the last inner layer's output of every step, (B, T, D H); 0 after a sample's end."""

    @abc.abstractmethod
    def take_gradient(self, gradient: Array) -> None:
        """Take the gradient by the output of every step, (B, T, D H)."""

    @abc.abstractmethod
    def backward(self, method: str = "auto") -> None:
        """Every delta, and the gradients by the initial states, by a method of net.backward."""

    @abc.abstractmethod
    def input_gradient(self, out: Array) -> None:
        """Write the gradient by the input, (B, T, F), of the last `backward`."""

    @abc.abstractmethod
    def weight_gradients(self) -> None:
        """Write the gradients by all weights and biases, of the last `backward`."""

    @property
    @abc.abstractmethod
    def forward_ways(self) -> tuple[str, ...]:
        """How each inner layer and direction last went forward, and why."""

    @property
    @abc.abstractmethod
    def backward_ways(self) -> tuple[str, ...]:
        """How each inner layer and direction last went back, and why."""

    @property
    def own_bytes(self) -> int:
        """Bytes that its passes over time take beside the buffers."""
        return sum(stack.pass_bytes for stack in self.stacks)


class Stack(StackPasses):
    """Bound launches of a recurrent layer on buffers of `stack_shapes`.

    buffers        those of `stack_shapes`, and `lengths` (B,) int64
    parameters, gradients  by PyTorch's names ("weight_ih_l0")
    forward_method  of the passes over time: "auto", "serial", "newton" or "quasi-newton"
    layers         the directions of each inner layer; `directions` has all of them, in PyTorch's order
    """

    def __init__(
        self,
        device: Device,
        sizes: StackSize,
        buffers: Mapping[str, Array],
        parameters: Mapping[str, Array],
        gradients: Mapping[str, Array],
        forward_method: str = "auto",
    ) -> None:
        self.device, self.sizes, self.lengths = device, sizes, buffers["lengths"]
        self.layers = make_directions(device, sizes, buffers, parameters, gradients)
        self.directions = [direction for layer in self.layers for direction in layer]
        self.initial_states = [direction.walk.initial for direction in self.directions]
        self.final_states = [direction.walk.final for direction in self.directions]
        self.boundaries = [direction.boundary for direction in self.directions]
        self.state_gradients = [direction.entering for direction in self.directions]
        self._workspace = buffers["sums"]
        first, last = self.directions[0], self.layers[-1]
        H, inputs, lengths = sizes.walk.hidden, sizes.inputs, self.lengths
        self._take_input = Gather(device, lengths, first.values)
        self._put_output = [Scatter(device, lengths, d.walk.state, H, n * H) for n, d in enumerate(last)]
        self._take_gradient = [
            Gather(device, lengths, d.by_output, n * H) for n, d in enumerate(last) if d.by_output is not None
        ]
        self._put_gradient = Scatter(device, lengths, first.by_input, inputs)
        self._forwards: list[DirectionPass] = []
        self._joins: list[Launch] = []
        self._forward = self._bind_forward(forward_method, self._free_for_each())
        self.graphs = None if any(getattr(one, "iterates", True) for one in self._forwards) else {}
        self._method: str | None = None
        self._scans: list[DirectionPass] = []
        self._backward: list[Launch] = []
        self._weights: list[Launch] | None = None
        self._to_input: list[Launch] | None = None

    @property
    def stacks(self) -> Sequence[Stack]:
        return (self,)  # made per call: a reference kept here is a cycle, which only the collector frees

    def _free_for_each(self) -> int:
        """Bytes each pass over time may take, so that those of all layers and directions fit."""
        return self.device.free_memory() // len(self.directions)

    # ---- forward ----

    def take(self, x: Array) -> None:
        self._take_input(x, self.ends_early)

    def forward(self) -> None:
        for launch in self._forward:
            launch()

    def kept(self) -> dict[str, Array]:
        """What the way back reads of the latest `forward`, by the names of `kept_shapes`."""
        arrays = {}
        for d in self.directions:
            arrays[f"state_{d.name}"], arrays[f"gates_{d.name}"] = d.walk.state, d.walk.gates
        return arrays

    def recall(self, kept: Mapping[str, Array]) -> None:
        """In place of a `forward`: take what one of the same input, lengths and first states had kept."""
        for name, array in self.kept().items():
            array[...] = kept[name]
        for join in self._joins:
            join()

    def put(self, out: Array) -> None:
        for put in self._put_output:
            put(out, self.ends_early)

    def _bind_forward(self, method: str, free: int) -> list[Launch]:
        launches: list[Launch] = []
        for number, layer in enumerate(self.layers):
            if number and len(layer) > 1:
                self._joins.append(self._join(self.layers[number - 1], layer[0].values))
                launches.append(self._joins[-1])
            passes = [self._forward_pass(d, method, free) for d in layer]
            self._forwards += passes
            for place in self._order(passes):
                d = layer[place]
                given, out = d.parameters, d.walk.projected
                launches.append(products.project(self.device, d.values, given.weight_ih, given.bias_ih, out))
                launches += self._bind_heads(d)
                launches.append(passes[place])
        return launches

    def _forward_pass(self, direction: Direction, method: str, free: int) -> DirectionPass:
        """The pass of one direction from its first step to its last."""
        return TimeForward(self.device, direction.walk, method, free)

    def _order(self, passes: list[DirectionPass]) -> list[int]:
        """The order in which those of an inner layer's directions are made."""
        return list(range(len(passes)))

    def _join(self, below: list[Direction], joined: Array) -> Launch:
        """The outputs of both directions side by side."""
        H, device = self.sizes.walk.hidden, self.device  # a call that held the stack would be a cycle
        states = [direction.walk.state for direction in below]

        def call() -> None:
            for number, state in enumerate(states):
                own = joined[:, number * H : (number + 1) * H]
                device.memory_of(own)[...] = device.memory_of(state[:, :H])

        return call

    @staticmethod
    def _bind_heads(direction: Direction) -> list[Launch]:
        """What the walk takes of the parameters in another order: those of each head together."""
        walk, given = direction.walk, direction.parameters
        size, cell = walk.size, walk.size.cell
        heads, units = size.heads, size.units
        own = walk.unit.reshape(heads, cell.parameters, units)
        pairs = [(own[:, row], array.reshape(heads, units)) for row, array in enumerate(given.unit)]
        if heads > 1:
            pairs += [
                (
                    to.reshape(heads, cell.sums, units, -1),
                    array.reshape(cell.sums, heads, units, -1).swapaxes(0, 1),
                )
                for to, array in ((walk.weight_hh, given.weight_hh), (walk.bias_hh, given.bias_hh))
                if array is not None
            ]

        def call() -> None:
            for target, source in pairs:
                target[...] = source

        return [call] if pairs else []

    @property
    def forward_ways(self) -> tuple[str, ...]:
        pairs = zip(self.directions, self._forwards, strict=True)
        return tuple(f"{direction.name}: {forward.description}" for direction, forward in pairs)

    # ---- backward ----

    def take_gradient(self, gradient: Array) -> None:
        for take in self._take_gradient:
            take(gradient, self.ends_early)

    def bind_backward(self, method: str) -> None:
        """Bind what `backward` launches by this method, if it is not bound."""
        if self._method != method:
            self._method = None
            if self.graphs is not None:
                self.graphs.clear()
            self._scans, self._backward = [], []  # their memory is given back before others take theirs
            free = self._free_for_each()
            self._scans = [self._backward_pass(direction, method, free) for direction in self.directions]
            self._backward = self._bind_backward()
            self._method = method

    def backward(self, method: str = "auto") -> None:
        self.bind_backward(method)
        for launch in self._backward:
            launch()

    def _backward_pass(self, d: Direction, method: str, free: int) -> DirectionPass:
        """The pass of one direction from its last step to its first."""
        return TimeScan(self.device, d.walk, d.by_output, d.boundary, d.delta, d.entering, method, free=free)

    @property
    def pass_bytes(self) -> int:
        """Bytes that its passes over time take beside the buffers."""
        return sum(getattr(one, "nbytes", 0) for one in (*self._forwards, *self._scans))

    @property
    def backward_ways(self) -> tuple[str, ...]:
        pairs = zip(self.directions, self._scans, strict=True)
        return tuple(f"{direction.name}: {scan.description}" for direction, scan in pairs)

    def _bind_backward(self) -> list[Launch]:
        launches = [launch for d in self.directions for launch in self._bind_heads(d)]
        for layer in reversed(range(self.sizes.layers)):
            if layer + 1 < self.sizes.layers:
                launches += self._bind_to_input(layer + 1)
            first = layer * self.sizes.directions
            passes = self._scans[first : first + self.sizes.directions]
            launches += [passes[place] for place in self._order(passes)]
        return launches

    def _bind_to_input(self, layer: int) -> list[Launch]:
        """The gradient by an inner layer's input, the first direction's `by_input`: beyond layer 0 in
        `by_output` of the one below."""
        directions, xp, H = self.layers[layer], self.device.xp, self.sizes.walk.hidden
        memory = self.device.memory_of
        launches = [
            products.project(self.device, d.delta, d.parameters.weight_ih, None, d.by_input, transposed=True)
            for d in directions
        ]
        if len(directions) == 1:
            return launches
        total, other = (d.by_input for d in directions)
        launches.append(lambda: xp.add(memory(total), memory(other), out=memory(total)))
        if layer:
            outs = [d.by_output for d in self.layers[layer - 1] if d.by_output is not None]

            def split() -> None:
                for number, out in enumerate(outs):
                    memory(out)[...] = memory(total[:, number * H : (number + 1) * H])

            launches.append(split)
        return launches

    def input_gradient(self, out: Array) -> None:
        if self._to_input is None:
            self._to_input = self._bind_to_input(0)
        for launch in self._to_input:
            launch()
        self._put_gradient(out, self.ends_early)

    def weight_gradients(self) -> None:
        if self._weights is None:
            self._weights = [launch for d in self.directions for launch in self._bind_weights(d)]
        for launch in self._weights:
            launch()

    def _bind_weights(self, d: Direction) -> list[Launch]:
        device, space, walk, by = self.device, self._workspace, d.walk, d.gradients
        size, cell = walk.size, walk.size.cell
        if products.gradients_size(device, size, by.weight_ih.shape[1]):
            launches = [products.gradients(device, walk, d.delta, d.values, space, by)]
        else:
            launches = [
                products.weight_gradient(device, d.delta, 0, d.values, space, by.weight_ih, by.bias_ih),
                *self._bind_recurrent_weights(d),
            ]
        if by.unit:
            launches.append(self._unit_gradients(d.delta, cell, by.unit))
        return launches

    def _bind_recurrent_weights(self, d: Direction) -> Iterator[Launch]:
        walk, by, size = d.walk, d.gradients, d.walk.size
        for first, rows in recurrent_rows(size.cell, size.hidden):
            assert by.weight_hh is not None
            weight, bias = by.weight_hh[rows], None if by.bias_hh is None else by.bias_hh[rows]
            yield products.weight_gradient(
                self.device, d.delta, first, walk.state, self._workspace, weight, bias, walk.initial,
                walk.reverse, size.heads,
            )  # fmt: skip

    def _unit_gradients(self, delta: Array, cell: CellForm, gradients: tuple[Array, ...]) -> Launch:
        """The gradients by the unit parameters: sums of their deltas over steps and samples."""
        first, xp = cell.gates + len(cell.separate), self.device.xp
        by_row = delta.reshape(delta.shape[0], cell.deltas, -1, delta.shape[2])

        def call() -> None:
            for number, gradient in enumerate(gradients):
                xp.sum(by_row[:, first + number], axis=(0, 2), out=gradient)

        return call


def recurrent_rows(cell: CellForm, hidden: int) -> Iterator[tuple[int, slice]]:
    """Which rows of the delta, from the first of each pair on, are the gradient by which rows of W_hh h +
    b_hh."""
    sources, begin = cell.recurrent_rows, 0
    for end in range(1, cell.sums + 1):
        if end == cell.sums or sources[end] != sources[end - 1] + 1:
            yield sources[begin] * hidden, slice(begin * hidden, end * hidden)
            begin = end
