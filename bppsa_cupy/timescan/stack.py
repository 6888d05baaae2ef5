"""All inner layers and directions of one recurrent layer, for one batch size and number of steps.

Sequences of the caller are (B, T, columns), C-contiguous, or views of (T, B, columns) where no sample ends
early; those inside are (T, rows, B).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np

from bppsa_cupy.devices import Array, Device, Launch
from bppsa_cupy.devices.base import Graphs
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.raw_kernels.sequences import sequence_gather, sequence_scatter
from bppsa_cupy.timescan import products
from bppsa_cupy.timescan.chunked import TimeScan
from bppsa_cupy.timescan.forward import TimeForward
from bppsa_cupy.timescan.ways import StackSize, Walk, Weights

#: Returns an uninitialised array by name, shape and dtype; the same memory for an equal name.
Buffer = Callable[..., Array]


@dataclass(frozen=True, eq=False)
class Direction:
    """One direction of one inner layer; arrays are by time, and lie in memory as `Device.arrange` has them.

    Attributes
    ----------
    name
        "l0", "l0_reverse", "l1", ...
    walk
        The passes over time.
    values
        (T, I, B), the inner layer's input (of the first I rows).
    parameters, gradients
        Arrays of the network.
    by_output
        (T, H, B), the gradient with respect to every step's output; None where there is none.
    boundary
        (P H, B), the gradient with respect to the state after the last step.
    delta
        (T, cell.deltas * H, B), the gradient with respect to the projected input, the separate gates'
        recurrent sums and the unit parameters.
    entering
        (P H, B), the gradient with respect to the state before the first step.
    by_input
        (T, I, B), the part of this direction in the gradient with respect to the input.
    """

    name: str
    walk: Walk
    values: Array
    parameters: Weights
    gradients: Weights
    by_output: Array | None
    boundary: Array
    delta: Array
    entering: Array
    by_input: Array


def suffix(layer: int, direction: int) -> str:
    """PyTorch's: "_l0", "_l0_reverse", "_l1", ..."""
    return f"_l{layer}" + ("_reverse" if direction else "")


def kept_shapes(sizes: StackSize) -> dict[str, tuple[int, ...]]:
    """The buffers that a forward pass fills and the way back reads, by name: states and gates of each inner
    layer and direction. With input, lengths, first states and parameters they are all it needs."""
    size, cell = sizes.walk, sizes.walk.cell
    rows = {"state": cell.states * size.hidden, "gates": cell.saved * size.hidden}
    return {
        name + suffix(layer, direction): (size.steps, count, size.batch)
        for layer in range(sizes.layers)
        for direction in range(sizes.directions)
        for name, count in rows.items()
    }


def make_directions(
    device: Device,
    sizes: StackSize,
    buffer: Buffer,
    parameters: Mapping[str, Array],
    gradients: Mapping[str, Array],
    forward_method: str,
) -> list[list[Direction]]:
    """The directions of each inner layer; arguments are those of a `Stack`."""
    cell, (T, H, B), both = sizes.walk.cell, sizes.walk.scalars, sizes.directions > 1
    kept = kept_shapes(sizes)
    # A serial walk on the host reads the projected input of a unit before it writes the unit's gates.
    in_place = forward_method != "newton" and not device.units_innermost
    in_place = in_place and sizes.projects and cell.saved == cell.gates

    def rows(name: str, count: int) -> Array:
        """An array by time, (T, count, B)."""
        return device.arrange(buffer(name, (T, count, B)))

    def make(layer: int, direction: int) -> Direction:
        end, every_step = suffix(layer, direction), sizes.every_step or layer < sizes.layers - 1
        state, gates = (device.arrange(buffer(name + end, kept[name + end])) for name in ("state", "gates"))
        projected = gates if in_place else rows("projected", cell.gates * H)
        delta = rows(f"delta{end}", cell.deltas * H)
        initial, final, boundary, entering = (
            device.arrange(buffer(f"{name}{end}", (cell.states * H, B)))
            for name in ("initial", "final", "boundary", "entering")
        )
        if layer and both:
            values = rows(f"joined_l{layer}", 2 * H)
            by_input = rows(f"by_joined{direction}", 2 * H)
        elif layer:
            values, by_input = made[layer - 1][0].walk.state, rows(f"by_output{direction}", H)
        elif sizes.projects:
            values, by_input = rows("input", sizes.inputs), rows(f"by_input{direction}", sizes.inputs)
        else:
            values, by_input = projected, delta
        bias_hh = parameters.get(f"bias_hh{end}")
        if bias_hh is None:
            bias_hh = buffer(f"no_bias{end}", (cell.sums * H,))
            bias_hh[...] = 0
        walk = Walk(
            size=sizes.walk, reverse=direction == 1, weight_hh=parameters[f"weight_hh{end}"],
            bias_hh=bias_hh, unit=buffer(f"unit{end}", (cell.parameters * H,)),
            lengths=buffer("lengths", (B,), np.int64), initial=initial, projected=projected, state=state,
            gates=gates, final=final,
        )  # fmt: skip
        return Direction(
            name=end[1:], walk=walk, values=values, parameters=_weights(parameters, end, sizes.unit),
            gradients=_weights(gradients, end, sizes.unit),
            by_output=rows(f"by_output{direction}", H) if every_step else None, boundary=boundary,
            delta=delta, entering=entering, by_input=by_input,
        )  # fmt: skip

    made: list[list[Direction]] = []
    for layer in range(sizes.layers):
        made.append([make(layer, direction) for direction in range(sizes.directions)])
    return made


def _weights(arrays: Mapping[str, Array], end: str, unit: tuple[str, ...]) -> Weights:
    return Weights(
        weight_ih=arrays.get(f"weight_ih{end}"),
        weight_hh=arrays[f"weight_hh{end}"],
        bias_ih=arrays.get(f"bias_ih{end}"),
        bias_hh=arrays.get(f"bias_hh{end}"),
        unit=tuple(arrays[f"{name}{end}"] for name in unit),
    )


class Exchange:
    """A call that takes columns of the caller's sequences into `inside`, or writes them from there; 0 after a
    sample's end.

    A call is told whether samples may end early. Where none does, a single one is copied, which takes half as
    long as a small launch. Nothing is checked again while the caller's shape and dtype stay the same.

    Parameters
    ----------
    lengths
        (B,) int64, where each sample ends.
    inside
        (T, rows, B), of which the first `rows` belong to the caller's columns from `first` on.
    out
        Whether `inside` is copied to the caller.
    """

    def __init__(
        self, device: Device, lengths: Array, inside: Array, rows: int, first: int = 0, out: bool = False
    ) -> None:
        self._device, self._lengths, self._inside, self._rows = device, lengths, inside, rows
        self._first, self._out, self._alone = first, out, 1 in (inside.shape[0], inside.shape[2])
        self._by_kernel = not device.units_innermost and inside.flags.c_contiguous
        self._known: Any = None
        self._launch: Callable[..., None]  # of what is known

    def __call__(self, outside: Array, ends_early: bool) -> None:
        by_time = outside.strides[0] < outside.strides[1]
        sequences = outside.transpose(1, 0, 2) if by_time else outside
        contiguous = sequences.flags.c_contiguous
        unsuited = by_time and not (self._by_kernel and contiguous)
        if unsuited or (self._alone and not ends_early):
            memory, columns = self._device.memory_of, slice(self._first, self._first + self._rows)
            theirs = memory(outside[:, :, columns].transpose(1, 2, 0))
            ours = memory(self._inside[:, : self._rows])
            source, target = (ours, theirs) if self._out else (theirs, ours)
            target[...] = source
            return
        known = outside.shape, outside.dtype, by_time
        if known != self._known or not contiguous:
            inside, lengths, (steps, rows, batch) = self._inside, self._lengths, self._inside.shape
            arguments: tuple[Any, ...]
            if self._out:
                kernel = sequence_scatter
                arguments = inside, lengths, sequences, steps, rows, self._rows, batch
            else:
                kernel, arguments = sequence_gather, (sequences, lengths, inside, steps, rows, batch)
            ends = outside.shape[2], self._first, by_time
            self._launch = self._device.bind_open(kernel, ("outside",), *arguments, *ends)
            self._known = known
        self._launch(sequences)


class Widened:
    """Input weights with a gate more, whose projected input is 1. A call copies the weights of the others."""

    def __init__(self, device: Device, weight: Array, bias: Array | None, rows: int) -> None:
        self.weight = device.zeros((rows, weight.shape[1]), weight.dtype)
        self.bias = device.zeros((rows,), weight.dtype)
        self.bias[len(weight) :] = 1
        self._pairs = [(self.weight[: len(weight)], weight)]
        if bias is not None:
            self._pairs.append((self.bias[: len(weight)], bias))

    def __call__(self) -> None:
        for target, source in self._pairs:
            target[...] = source


class Stack:
    """Bound launches of a recurrent layer on buffers; nothing is allocated in a pass.

    A caller fills `lengths` and the initial states, and the input by `take`; then `forward`; then, for the
    backward pass, the boundaries and the gradient with respect to the output; `backward`; `weight_gradients`
    and `input_gradient` in either order, or neither.

    Parameters
    ----------
    buffer
        Returns the memory of the passes.
    parameters, gradients
        Arrays by the names of PyTorch ("weight_ih_l0").
    forward_method
        Method of the passes over time: "auto", "serial" or "newton".
    layers
        The directions of each inner layer; `directions` has all of them, in PyTorch's order.
    ends_early
        Whether a sample may end before the last step; set with `lengths`.
    closing
        (G H,), the projected input that makes every state 0; G are the cell's gates, the last of which
        has no weights where `weight_ih` has fewer rows: it is 1 at all other steps.
    extra
        (times, samples) of the steps with that input; set with `lengths`.
    initial_states, boundaries
        (S, B), one per direction: the states before the first step, and the gradients with respect to
        those after the last one.
    final_states, state_gradients
        (S, B), likewise: the states after the last step of the latest `forward`, and the gradients with
        respect to the initial states of the latest `backward`.
    graphs
        Launches that the device stores (`Device.repeat`). None if the host waits in a pass, for example
        for the error of an iteration.
    """

    ends_early: bool
    graphs: Graphs | None = None
    extra: tuple[Array, Array] | None = None

    def __init__(
        self,
        device: Device,
        sizes: StackSize,
        buffer: Buffer,
        parameters: Mapping[str, Array],
        gradients: Mapping[str, Array],
        forward_method: str = "auto",
        closing: Array | None = None,
    ) -> None:
        self.device, self.sizes, self._closing = device, sizes, closing
        self.layers = make_directions(device, sizes, buffer, parameters, gradients, forward_method)
        self.directions = [direction for layer in self.layers for direction in layer]
        self.initial_states = [direction.walk.initial for direction in self.directions]
        self.final_states = [direction.walk.final for direction in self.directions]
        self.boundaries = [direction.boundary for direction in self.directions]
        self.state_gradients = [direction.entering for direction in self.directions]
        first, last = self.directions[0], self.layers[-1]
        H, inputs, lengths = sizes.walk.hidden, sizes.inputs, first.walk.lengths
        walk, widths = sizes.walk, {H, *map(sizes.inputs_of, range(sizes.layers))}
        space = max(
            *(
                products.workspace_size(device, walk.steps, walk.batch, walk.cell.gates * H, w)
                for w in widths
            ),
            *(products.gradients_size(device, walk, w) for w in widths),
        )
        self.lengths, self._workspace = lengths, buffer("sums", (space,))
        self._exchange_input = Exchange(device, lengths, first.values, inputs)
        self._put_output = [
            Exchange(device, lengths, d.walk.state[:, sizes.output * H :], H, n * H, out=True)
            for n, d in enumerate(last)
        ]
        # Gradients with respect to another state than the first one enter as the last saved row.
        into = [d.walk.gates[:, -H:] if sizes.output else d.by_output for d in last]
        self._take_gradient = [
            Exchange(device, lengths, array, H, n * H) for n, array in enumerate(into) if array is not None
        ]
        self._put_gradient = Exchange(device, lengths, first.by_input, inputs, out=True)
        self._forwards: list[Any] = []
        self._joins: list[Launch] = []
        self._forward = self._bind_forward(forward_method)
        iterates = any(getattr(forward, "iterates", True) for forward in self._forwards)
        self.graphs = None if iterates or closing is not None else {}
        self._method: str | None = None
        self._scans: list[Any] = []
        self._backward: list[Launch] = []
        self._weights: list[Launch] | None = None
        self._to_input: list[Launch] | None = None

    # ---- forward ----

    def take_input(self, x: Array) -> None:
        """Take the input, (B, T, F); after a sample's end it becomes 0."""
        self._exchange_input(x, self.ends_early)

    def forward(self) -> None:
        """Compute every state of every inner layer and direction. A captured training step reduces the chunks
        of the backward pass meanwhile."""
        beside: dict[Any, Any] = {}
        if self.device.side is not None:
            beside.update(zip(self._forwards, self._scans, strict=False))
        for launch in self._forward:
            if self.extra is not None and launch in self._forwards:
                (times, samples), place = self.extra, self._forwards.index(launch)
                self.directions[place].walk.projected[times, :, samples] = self._closing
            chunks = beside[launch].by_chunks if launch in beside else None
            if chunks is None or not chunks.reduce_beside(launch):
                launch()

    def saved_arrays(self) -> dict[str, Array]:
        """The arrays of the latest `forward` that the backward pass reads, by the names of `kept_shapes`."""
        arrays = {}
        for d in self.directions:
            arrays[f"state_{d.name}"], arrays[f"gates_{d.name}"] = d.walk.state, d.walk.gates
        return arrays

    def recall(self, stored: Mapping[str, Array]) -> None:
        """In place of a `forward`: take what one of the same input, lengths and first states had kept."""
        for name, array in self.saved_arrays().items():
            array[...] = stored[name]
        for join in self._joins:
            join()

    def put(self, out: Array) -> None:
        """Write the last inner layer's output of every step, (B, T, D H); 0 after a sample's end."""
        for put in self._put_output:
            put(out, self.ends_early)

    def _bind_forward(self, method: str) -> list[Launch]:
        launches: list[Launch] = []
        for number, layer in enumerate(self.layers):
            if number and len(layer) > 1:
                self._joins.append(self._join(self.layers[number - 1], layer[0].values))
                launches.append(self._joins[-1])
            passes = [self._forward_pass(d, method) for d in layer]
            self._forwards += passes
            for place in self._order(passes):
                d = layer[place]
                weights_of_layer, out = d.parameters, d.walk.projected
                if weights_of_layer.weight_ih is not None:
                    weights = weights_of_layer.weight_ih, weights_of_layer.bias_ih
                    if len(weights_of_layer.weight_ih) < out.shape[1]:
                        launches.append(widen := Widened(self.device, *weights, out.shape[1]))
                        weights = widen.weight, widen.bias
                    launches.append(products.project(self.device, d.values, *weights, out))
                launches += self._bind_units(d)
                launches.append(passes[place])
        return launches

    def _forward_pass(self, direction: Direction, method: str) -> Any:
        """The pass of one direction from its first step to its last."""
        return TimeForward(self.device, direction.walk, method)

    def _order(self, passes: list[Any]) -> list[int]:
        """The order in which those of an inner layer's directions are made."""
        return list(range(len(passes)))

    def _join(self, below: list[Direction], joined: Array) -> Launch:
        """The outputs of both directions side by side."""
        H, device = self.sizes.walk.hidden, self.device  # a call that held the stack would be a cycle
        states = [direction.walk.state for direction in below]

        def call() -> None:
            for number, state in enumerate(states):
                target = joined[:, number * H : (number + 1) * H]
                device.memory_of(target)[...] = device.memory_of(state[:, :H])

        return call

    @staticmethod
    def _bind_units(direction: Direction) -> list[Launch]:
        """The copy of the unit parameters, one after the other, for the walk."""
        values = direction.walk.unit.reshape(-1, direction.walk.size.hidden)
        pairs = list(zip(values, direction.parameters.unit, strict=True))

        def call() -> None:
            for target, source in pairs:
                target[...] = source

        return [call] if pairs else []

    @property
    def forward_ways(self) -> tuple[str, ...]:
        """How each inner layer and direction last went forward, and why."""
        pairs = zip(self.directions, self._forwards, strict=True)
        return tuple(f"{direction.name}: {forward.description}" for direction, forward in pairs)

    # ---- backward ----

    def take_gradient(self, gradient: Array) -> None:
        """Take the gradient with respect to the output of every step, (B, T, D H)."""
        for exchange in self._take_gradient:
            exchange(gradient, self.ends_early)

    def backward(self, method: str = "auto") -> None:
        """Compute every delta, and the gradients with respect to the initial states.

        `method` is a method of net.backward. Only the serial pass reads gradients from a saved row.
        """
        method = "bp" if self.sizes.output else method
        if self._method != method:
            self._method = None
            if self.graphs is not None:
                self.graphs.clear()
            self._scans, self._backward = [], []  # their memory is given back before others take theirs
            self._scans = list(map(self._backward_pass, self.directions, repeat(method)))
            launches = list(chain.from_iterable(map(self._bind_units, self.directions)))
            for layer in reversed(range(self.sizes.layers)):
                if layer + 1 < self.sizes.layers:
                    launches += self._bind_to_input(layer + 1)
                first = layer * self.sizes.directions
                passes = self._scans[first : first + self.sizes.directions]
                launches += map(passes.__getitem__, self._order(passes))
            self._backward = launches
            self._method = method
        if self.device.side is not None:
            self.device.side.join()
        for launch in self._backward:
            launch()
        if self.extra is not None:
            times, samples = self.extra
            for d in self.directions:
                d.delta[times, :, samples] = 0

    def _backward_pass(self, d: Direction, method: str) -> Any:
        """The pass of one direction from its last step to its first."""
        return TimeScan(self.device, d.walk, d.by_output, d.boundary, d.delta, d.entering, method)

    @property
    def backward_ways(self) -> tuple[str, ...]:
        """How each inner layer and direction last went back, and why."""
        pairs = zip(self.directions, self._scans, strict=True)
        return tuple(f"{direction.name}: {scan.description}" for direction, scan in pairs)

    def _bind_to_input(self, layer: int) -> list[Launch]:
        """The gradient with respect to an inner layer's input, the first direction's `by_input`: beyond layer
        0 in `by_output` of the one below."""
        directions, xp, H = self.layers[layer], self.device.xp, self.sizes.walk.hidden
        memory = self.device.memory_of
        launches = [
            products.project(self.device, d.delta, d.parameters.weight_ih, None, d.by_input, transposed=True)
            for d in directions
            if d.parameters.weight_ih is not None
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
        """Write the gradient with respect to the input, (B, T, F), of the last `backward`."""
        if self._to_input is None:
            self._to_input = self._bind_to_input(0)
        for launch in self._to_input:
            launch()
        self._put_gradient(out, self.ends_early)

    def weight_gradients(self) -> None:
        """Write the gradients with respect to all weights and biases, of the last `backward`."""
        if self._weights is None:
            self._weights = list(chain.from_iterable(map(self._bind_weights, self.directions)))
        for launch in self._weights:
            launch()

    def _bind_weights(self, d: Direction) -> list[Launch]:
        device, space, walk, by = self.device, self._workspace, d.walk, d.gradients
        size, cell = walk.size, walk.size.cell
        if by.weight_ih is None:
            launches = list(self._bind_recurrent_weights(d))
        elif self._closing is None and products.gradients_size(device, size, by.weight_ih.shape[1]):
            launches = [products.gradients(device, walk, d.delta, d.values, space, by)]
        else:
            launches = [
                products.weight_gradient(device, d.delta, 0, d.values, space, by.weight_ih, by.bias_ih),
                *self._bind_recurrent_weights(d),
            ]
        if by.unit:
            # The gradients of the unit parameters are sums of their deltas over steps and samples.
            first, xp = cell.gates + len(cell.separate), device.xp
            by_row = d.delta.reshape(d.delta.shape[0], cell.deltas, -1, d.delta.shape[2])

            def add_units() -> None:
                for number, gradient in enumerate(by.unit):
                    xp.sum(by_row[:, first + number], axis=(0, 2), out=gradient)

            launches.append(add_units)
        return launches

    def _bind_recurrent_weights(self, d: Direction) -> Iterator[Launch]:
        walk, by, size = d.walk, d.gradients, d.walk.size
        for first, rows in recurrent_rows(size.cell, size.hidden):
            weight, bias = by.weight_hh[rows], None if by.bias_hh is None else by.bias_hh[rows]
            yield products.weight_gradient(
                self.device, d.delta, first, walk.state, self._workspace, weight, bias, walk.initial,
                walk.reverse,
            )  # fmt: skip


def recurrent_rows(cell: CellForm, hidden: int) -> Iterator[tuple[int, slice]]:
    """Which rows of the delta, from the first of each pair on, are the gradient with respect to which rows of
    W_hh h + b_hh."""
    sources, begin = cell.recurrent_rows, 0
    for end in range(1, cell.sums + 1):
        if end == cell.sums or sources[end] != sources[end - 1] + 1:
            yield sources[begin] * hidden, slice(begin * hidden, end * hidden)
            begin = end
