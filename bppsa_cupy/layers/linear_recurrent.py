"""Recurrent layers whose state goes on by numbers alone, c_t = a_t c_{t-1} + b_t: one exact scan each way."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array
from bppsa_cupy.layers.base import Shape, StepJacobians
from bppsa_cupy.layers.recurrent import Recurrent
from bppsa_cupy.layers.recurrent_context import RecurrentContext
from bppsa_cupy.raw_kernels.linear.form import LinearForm
from bppsa_cupy.raw_kernels.linear.kernels import linear_kernels_of
from bppsa_cupy.timescan import suffix
from bppsa_cupy.timescan.chunked import WAYS
from bppsa_cupy.timescan.linear import LinearScan


class Direction(NamedTuple):
    """One direction of an inner layer.

    name    "l0", "l0_reverse", "l1", ...
    number  among all, in PyTorch's order
    """

    name: str
    number: int
    layer: int
    reverse: bool


@dataclass
class LinearContext(RecurrentContext):
    """A linear recurrent layer's part of a pass.

    inputs  (B, T, I) of each inner layer; what lies after a sample's end is 0
    forward, backward  how each inner layer and direction went over time, and why
    """

    inputs: list[Array] = field(default_factory=list, repr=False)
    forward: list[str] = field(default_factory=list)
    backward: list[str] = field(default_factory=list)

    @property
    def forward_ways(self) -> tuple[str, ...]:
        return tuple(self.forward)

    @property
    def backward_ways(self) -> tuple[str, ...]:
        return tuple(self.backward) if self.went_back else ()

    def let_go(self) -> None:
        super().let_go()
        self.inputs.clear()


class LinearRecurrent(Recurrent):
    """A recurrent layer whose gates read the input alone: of a unit c_t = a_t c_{t-1} + b_t, and what is put
    out is c or an output of it. A step's Jacobian is diagonal, both passes are exact scans, by chunks of
    steps at once or step after step. Arguments are those of `Recurrent`.

    bias           whether there is a bias of each gate that has one
    forward_method  "serial", "chunked", or "auto"

    Parameters a layer and direction, gates stacked in the cell's order: weight_ih_l0 (G H, F), bias_ih_l0 (of
    the gates in `biased`), and each of the cell's own by its name, NAME_l0 (H,).
    """

    context = LinearContext
    forward_methods = ("auto", "serial", "chunked")

    @property
    @abc.abstractmethod
    def cell(self) -> LinearForm:
        """The cell whose terms are scanned."""

    @property
    def unit_parameters(self) -> tuple[str, ...]:
        """The names of what the cell learns a unit, beside the weights."""
        return ()

    @property
    def biased(self) -> tuple[int, ...]:
        """The gates that have a bias, where the layer has some."""
        return tuple(range(self.cell.gates))

    @property
    def window(self) -> int:
        """Steps that the gates see: 1, or 2 with the one before."""
        return 1

    def skips(self, inputs: int) -> bool:
        """Whether the last gate is the input itself, of so many features, and has no weights."""
        return False

    @property
    def state_count(self) -> int:
        return 1

    @property
    def step_pattern(self) -> Pattern:
        return Pattern.diagonal(self.hidden_size)

    def _inputs(self, layer: int) -> int:
        """Features of an inner layer's input."""
        return self.directions * self.hidden_size if layer else self.input_size

    def _projected(self, inputs: int) -> int:
        """Gates that have weights, on an input of so many features."""
        return self.cell.gates - self.skips(inputs)

    def _walks(self, only: int | None = None) -> Iterator[Direction]:
        """Every direction of every inner layer, or of one."""
        for layer in range(self.num_layers) if only is None else (only,):
            for direction in range(self.directions):
                number = layer * self.directions + direction
                yield Direction(suffix(layer, direction)[1:], number, layer, direction == 1)

    def parameter_shapes(self) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {}
        H = self.hidden_size
        for walk in self._walks():
            inputs = self._inputs(walk.layer)
            shapes[f"weight_ih_{walk.name}"] = (self._projected(inputs) * H, self.window * inputs)
            if self.bias:
                shapes[f"bias_ih_{walk.name}"] = (len(self.biased) * H,)
            shapes |= {f"{name}_{walk.name}": (H,) for name in self.unit_parameters}
        return shapes

    # ---- buffers ----

    def _shapes(self, batch: int, steps: int) -> dict[str, Shape]:
        """The buffers of a forward pass by name, but for what it puts out."""
        H, G = self.hidden_size, self.cell.gates
        rows: dict[str, Shape] = {"term": (batch, steps, H)}
        for walk in self._walks():
            rows[f"projected_{walk.name}"] = (batch, steps, G * H)
            if self.window > 1:
                rows[f"seen_{walk.name}"] = (batch, steps, self.window * self._inputs(walk.layer))
            rows[f"factor_{walk.name}"] = rows[f"state_{walk.name}"] = (batch, steps, H)
            if walk.layer < self.num_layers - 1:
                rows[f"joined_{walk.layer}"] = (batch, steps, self.directions * H)
        return rows

    def _shapes_back(self, batch: int, steps: int) -> dict[str, Shape]:
        """Those of a backward pass."""
        H, own = self.hidden_size, self.cell.gates + len(self.unit_parameters)
        rows: dict[str, Shape] = {"by_factor": (batch, steps, H), "by_output": (batch, steps, H)}
        if self.cell.has_output:
            rows["by_state"] = (batch, steps, H)
        for walk in self._walks():
            rows[f"delta_{walk.name}"] = (batch, steps, own * H)
            rows[f"by_term_{walk.name}"] = (batch, steps, H)
            if walk.layer:
                rows[f"by_joined_{walk.layer}"] = (batch, steps, self.directions * H)
        return rows

    # ---- forward ----

    def forward(self, ctx: LinearContext, x: Array) -> Array:
        (batch, steps), H = x.shape[:2], self.hidden_size
        ctx.reserve(self._shapes(batch, steps))
        ctx.went_back = False
        ctx.forward, ctx.inputs = [], [self._taken(ctx, x)]
        states = ctx.buffer("states_0", (self.num_layers * self.directions, batch, H))
        shape = (batch, steps, self.directions * H) if self.outputs == "all" else (batch, self.directions * H)
        y = ctx.buffer("output", shape)
        for walk in self._walks():
            if walk.layer == len(ctx.inputs):
                ctx.inputs.append(ctx.buffer(f"joined_{walk.layer - 1}", (batch, steps, self.directions * H)))
            state = self._scanned(ctx, walk)
            last = self._last(ctx, state, walk.reverse)
            states[walk.number] = last
            own = slice(H, 2 * H) if walk.reverse else slice(0, H)
            if walk.layer < self.num_layers - 1:
                shape = (batch, steps, self.directions * H)
                self._put(ctx, walk, state, ctx.buffer(f"joined_{walk.layer}", shape)[:, :, own])
            elif self.outputs == "all":
                self._put(ctx, walk, state, y[:, :, own])
            else:
                put = ctx.buffer("term", state.shape)
                self._put(ctx, walk, state, put)
                y[:, own] = self._last(ctx, put, walk.reverse)
        ctx.saved.update(input=x, output=y, states=states)
        ctx.saved.pop("state_gradients", None)
        return y

    def _taken(self, ctx: LinearContext, x: Array) -> Array:
        """The input, with 0 after each sample's end."""
        if ctx.lengths is None:
            return ctx.device.xp.ascontiguousarray(x)
        taken = ctx.buffer("input", x.shape)
        taken[...] = x
        self._clear(ctx, taken)
        return taken

    @staticmethod
    def _clear(ctx: LinearContext, rows: Array) -> None:
        """Set what lies after each sample's end to 0, of (B, T, columns)."""
        if ctx.lengths is not None:
            xp = ctx.device.xp
            after = xp.arange(rows.shape[1])[None, :] >= ctx.lengths[:, None]
            xp.copyto(rows, 0, where=after[:, :, None])

    @staticmethod
    def _last(ctx: LinearContext, rows: Array, reverse: bool) -> Array:
        """Of (B, T, H) the step that a direction ends with, (B, H): a view where all samples are whole."""
        if reverse:
            return rows[:, 0]
        if ctx.lengths is None:
            return rows[:, -1]
        return rows[ctx.device.xp.arange(len(rows)), ctx.lengths - 1]

    def _scanned(self, ctx: LinearContext, walk: Direction) -> Array:
        """The states of a direction."""
        device, x, H = ctx.device, ctx.inputs[walk.layer], self.hidden_size
        batch, steps = x.shape[:2]
        projected = ctx.buffer(f"projected_{walk.name}", (batch, steps, self.cell.gates * H))
        self._project(ctx, walk, x, projected)
        factor, state = (ctx.buffer(f"{name}_{walk.name}", (batch, steps, H)) for name in ("factor", "state"))
        term = ctx.buffer("term", (batch, steps, H))
        device.launch(
            linear_kernels_of(self.cell)["terms"], projected, self._unit(ctx, walk), factor, term,
            batch * steps, H,
        )  # fmt: skip
        scan = self._scan(ctx, factor, walk, self.forward_method)
        ctx.forward.append(f"{walk.name}: {scan.forward_choice}")
        scan.forward(term, self._initial(ctx, walk), state)
        return state

    def _project(self, ctx: LinearContext, walk: Direction, x: Array, projected: Array) -> None:
        """W x + b of every step, and the input itself where the last gate is it."""
        xp, H, inputs = ctx.device.xp, self.hidden_size, x.shape[2]
        weight, rows = ctx.parameters[f"weight_ih_{walk.name}"], projected.reshape(-1, projected.shape[2])
        columns = self._projected(inputs) * H
        xp.matmul(self._seen(ctx, walk), weight.T, out=rows[:, :columns])
        if columns < rows.shape[1]:
            rows[:, columns:] = x.reshape(-1, inputs)
        if self.bias:
            bias = ctx.parameters[f"bias_ih_{walk.name}"]
            for place, gate in enumerate(self.biased):
                rows[:, gate * H : (gate + 1) * H] += bias[place * H : (place + 1) * H]

    def _seen(self, ctx: LinearContext, walk: Direction) -> Array:
        """What a direction's gates see at every step, (B T, window I): the step before, and the present."""
        x = ctx.inputs[walk.layer]
        batch, steps, inputs = x.shape
        if self.window == 1:
            return x.reshape(-1, inputs)
        seen = ctx.buffer(f"seen_{walk.name}", (batch, steps, 2 * inputs))
        earlier, later = (slice(1, None), slice(-1, None)) if walk.reverse else (slice(None, -1), slice(1))
        seen[:, slice(None, -1) if walk.reverse else slice(1, None), :inputs] = x[:, earlier]
        seen[:, later, :inputs] = 0
        seen[:, :, inputs:] = x
        return seen.reshape(-1, 2 * inputs)

    def _unit(self, ctx: LinearContext, walk: Direction) -> Array:
        """The unit parameters one after the other."""
        unit = ctx.buffer(f"unit_{walk.name}", (len(self.unit_parameters) * self.hidden_size,))
        for place, name in enumerate(self.unit_parameters):
            own = slice(place * self.hidden_size, (place + 1) * self.hidden_size)
            unit[own] = ctx.parameters[f"{name}_{walk.name}"]
        return unit

    def _scan(self, ctx: LinearContext, factor: Array, walk: Direction, method: str) -> LinearScan:
        batch, steps, H = factor.shape
        lengths = ctx.lengths
        if lengths is None:
            lengths = ctx.buffer("whole", (batch,), np.int64)
            lengths[...] = steps
        resets = ctx.buffer("resets", (0, steps), np.uint8)
        return LinearScan(ctx.device, factor, batch, steps, H, lengths, resets, False, walk.reverse, method)

    def _initial(self, ctx: LinearContext, walk: Direction) -> Array:
        """The state before the first step, (B, H)."""
        initial = ctx.buffer(f"initial_{walk.name}", (len(ctx.inputs[0]), self.hidden_size))
        initial[...] = 0 if ctx.initial is None else ctx.initial[0][walk.number]
        return initial

    def _put(self, ctx: LinearContext, walk: Direction, state: Array, out: Array) -> None:
        """Write what a direction puts out at every step into `out`, (B, T, H)."""
        if not self.cell.has_output:
            out[...] = state
            return
        batch, steps, H = state.shape
        own = out if out.flags.c_contiguous else ctx.buffer("put", state.shape)
        projected = ctx.buffer(f"projected_{walk.name}", (batch, steps, self.cell.gates * H))
        ctx.device.launch(
            linear_kernels_of(self.cell)["output"], projected, self._unit(ctx, walk), state, own,
            batch * steps, H,
        )  # fmt: skip
        if own is not out:
            out[...] = own
        self._clear(ctx, out)

    # ---- backward ----

    def backward(self, ctx: LinearContext, gradient: Array, want_input: bool) -> Array | None:
        result = self.backward_by_input(ctx, gradient, want_input)
        self.backward_by_weights(ctx, gradient)
        return result

    def backward_by_input(self, ctx: LinearContext, gradient: Array, want_input: bool) -> Array | None:
        self._go_back(ctx, gradient)
        return self._by_input(ctx, 0) if want_input else None

    def vjp(self, ctx: LinearContext, gradient: Array) -> Array:
        self._go_back(ctx, gradient)
        return self._by_input(ctx, 0)

    def parameter_gradients(self, ctx: LinearContext, gradient: Array) -> None:
        self._go_back(ctx, gradient)
        self.backward_by_weights(ctx, gradient)

    def _go_back(self, ctx: LinearContext, gradient: Array) -> None:
        """Fill every delta, the gradient by projected input and unit parameters, from that by the output."""
        batch, steps = ctx.inputs[0].shape[:2]
        H, count = self.hidden_size, self.num_layers * self.directions
        ctx.reserve(self._shapes_back(batch, steps))
        ctx.went_back, ctx.backward = False, [""] * count
        by_states = ctx.buffer("state_gradients_0", (count, batch, H))
        by_first = ctx.buffer("by_first", (batch, H))
        given = gradient
        for layer in reversed(range(self.num_layers)):
            for walk in self._walks(layer):
                own = slice(H, 2 * H) if walk.reverse else slice(0, H)
                self._delta(ctx, walk, given[..., own], by_first)
                by_states[walk.number] = by_first
            if layer:
                given = self._by_input(ctx, layer)
        ctx.went_back = True
        if ctx.want_states:
            ctx.saved["state_gradients"] = by_states

    def _delta(self, ctx: LinearContext, walk: Direction, given: Array, by_first: Array) -> None:
        """Fill a direction's delta, and the gradient by its first state, from the gradient by its output:
        (B, T, H), or (B, H) by the last one alone."""
        device, kernels, H = ctx.device, linear_kernels_of(self.cell), self.hidden_size
        batch, steps = ctx.inputs[0].shape[:2]
        shape, rows, unit = (batch, steps, H), batch * steps, self._unit(ctx, walk)
        by_output = ctx.buffer("by_output", shape)
        if given.ndim == 3:
            by_output[...] = given
            self._clear(ctx, by_output)
        else:
            by_output[...] = 0
            self._add_last(ctx, by_output, walk.reverse, given)
        projected = ctx.buffer(f"projected_{walk.name}", (batch, steps, self.cell.gates * H))
        factor, state = (ctx.buffer(f"{name}_{walk.name}", shape) for name in ("factor", "state"))
        by_state = by_output
        if self.cell.has_output:
            by_state = ctx.buffer("by_state", shape)
            device.launch(kernels["by_state"], projected, unit, state, by_output, by_state, rows, H)
        if ctx.final_gradient is not None:
            self._add_last(ctx, by_state, walk.reverse, ctx.final_gradient[0][walk.number])
        by_factor, by_term = ctx.buffer("by_factor", shape), ctx.buffer(f"by_term_{walk.name}", shape)
        scan = self._scan(ctx, factor, walk, WAYS[ctx.method])
        ctx.backward[walk.number] = f"{walk.name}: {scan.backward_choice}"
        scan.backward(state, self._initial(ctx, walk), by_state, by_factor, by_term, by_first)
        none = ctx.buffer("none", (0,))
        has = self.cell.has_output
        delta = self._delta_of(ctx, walk)
        device.launch(
            kernels["by_inputs"], projected, unit, state if has else none, by_factor, by_term,
            by_output if has else none, delta, rows, H,
        )  # fmt: skip

    def _delta_of(self, ctx: LinearContext, walk: Direction) -> Array:
        """A direction's delta, (B T, (G + Q) H)."""
        batch, steps = ctx.inputs[0].shape[:2]
        columns = (self.cell.gates + len(self.unit_parameters)) * self.hidden_size
        return ctx.buffer(f"delta_{walk.name}", (batch * steps, columns))

    @staticmethod
    def _add_last(ctx: LinearContext, rows: Array, reverse: bool, more: Array) -> None:
        """Add (B, H) to the step that a direction ends with, of (B, T, H)."""
        if reverse or ctx.lengths is None:
            rows[:, 0 if reverse else -1] += more
        else:
            rows[ctx.device.xp.arange(len(rows)), ctx.lengths - 1] += more

    def _by_input(self, ctx: LinearContext, layer: int) -> Array:
        """The gradient by an inner layer's input."""
        xp, inputs = ctx.device.xp, self._inputs(layer)
        out = ctx.buffer(f"by_joined_{layer}" if layer else "input_gradient", ctx.inputs[layer].shape)
        whole = out if out.flags.c_contiguous else ctx.buffer("by_rows", out.shape)
        rows, columns = whole.reshape(-1, inputs), self._projected(inputs) * self.hidden_size
        for walk in self._walks(layer):
            delta, weight = self._delta_of(ctx, walk), ctx.parameters[f"weight_ih_{walk.name}"]
            if not walk.reverse and self.window == 1:
                xp.matmul(delta[:, :columns], weight, out=rows)
            else:
                if not walk.reverse:
                    rows[...] = 0
                self._add_seen(whole, walk, xp.matmul(delta[:, :columns], weight))
            if self.skips(inputs):
                rows += delta[:, columns : columns + inputs]
        if self.window > 1:
            self._clear(ctx, whole)
        if whole is not out:
            out[...] = whole
        return out

    def _add_seen(self, out: Array, walk: Direction, by_seen: Array) -> None:
        """Add to the gradient by an input what comes from that by `_seen` of it."""
        inputs = out.shape[2]
        by = by_seen.reshape(*out.shape[:2], self.window * inputs)
        out += by[:, :, -inputs:]
        if self.window > 1 and walk.reverse:
            out[:, 1:] += by[:, :-1, :inputs]
        elif self.window > 1:
            out[:, :-1] += by[:, 1:, :inputs]

    def backward_by_weights(self, ctx: LinearContext, gradient: Array) -> None:
        xp, H = ctx.device.xp, self.hidden_size
        for walk in self._walks():
            rows, columns = self._delta_of(ctx, walk), self._projected(self._inputs(walk.layer)) * H
            seen = self._seen(ctx, walk)
            xp.matmul(rows[:, :columns].T, seen, out=ctx.gradients[f"weight_ih_{walk.name}"])
            sums = xp.sum(rows, axis=0).reshape(-1, H)
            if self.bias:
                ctx.gradients[f"bias_ih_{walk.name}"][...] = sums[list(self.biased)].reshape(-1)
            for place, name in enumerate(self.unit_parameters):
                ctx.gradients[f"{name}_{walk.name}"][...] = sums[self.cell.gates + place]

    # ---- analysis ----

    def step_jacobians(self, ctx: LinearContext, gradient: Array | None) -> Iterator[StepJacobians]:
        device, pattern = ctx.device, self.step_pattern
        for walk in self._walks():
            batch, steps = ctx.inputs[0].shape[:2]
            factor = ctx.buffer(f"factor_{walk.name}", (batch, steps, self.hidden_size))
            values = device.xp.ascontiguousarray(factor.transpose(1, 2, 0))
            if ctx.lengths is not None:
                after = device.xp.arange(steps)[:, None] >= ctx.lengths[None, :]
                device.xp.copyto(values, 1, where=after[:, None, :])
            norms = None
            if ctx.went_back and gradient is not None:
                by_term = ctx.buffer(f"by_term_{walk.name}", factor.shape)
                squares = (by_term.astype(np.float64) ** 2).sum(axis=(0, 2))
                norms = np.sqrt(device.to_host(squares))
            way = "backward" if walk.reverse else "forward"
            yield StepJacobians(f"{type(self).__name__} l{walk.layer}", way, pattern, values, norms)
