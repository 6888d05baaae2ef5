"""Linear recurrent layers of a cell, whose gates, which read the input, make factors and terms."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

from bppsa_cupy.devices import Array
from bppsa_cupy.layers.base import Shape
from bppsa_cupy.layers.linear_recurrent import Direction, LinearContext, LinearRecurrent
from bppsa_cupy.raw_kernels.linear.form import LinearForm
from bppsa_cupy.raw_kernels.linear.kernels import linear_kernels_of


class GatedRecurrent(LinearRecurrent):
    """A linear recurrent layer of a cell: gates of W_ih x + b_ih make factor and term of each unit, and what
    is put out is the state, or the cell's output. Arguments are those of `LinearRecurrent`.

    bias  whether there is a bias of each gate in `biased`

    Parameters a layer and direction, gates stacked in the cell's order: weight_ih_l0 (G H, F), bias_ih_l0 of
    the gates in `biased`, and each of the cell's own by its name, NAME_l0 (H,).
    """

    @property
    @abc.abstractmethod
    def cell(self) -> LinearForm:
        """The cell."""

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

    def weighted(self, layer: int) -> int:
        """Rows of an inner layer's W_ih."""
        return (self.cell.gates - self.skips(self.inputs(layer))) * self.hidden_size

    def parameter_shapes(self) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {}
        for walk in self.walks():
            of, inputs = f"_{walk.name}", self.window * self.inputs(walk.layer)
            shapes["weight_ih" + of] = (self.weighted(walk.layer), inputs)
            if self.bias:
                shapes["bias_ih" + of] = (len(self.biased) * self.hidden_size,)
            shapes |= {name + of: (self.hidden_size,) for name in self.unit_parameters}
        return shapes

    def own_shapes(self, batch: int, steps: int, walk: Direction, back: bool) -> dict[str, Shape]:
        H, G, of = self.hidden_size, self.cell.gates, f"_{walk.name}"
        if back:
            shapes = {"by_factor": H, "delta" + of: (G + len(self.unit_parameters)) * H}
            shapes |= {"by_state": H} if self.cell.has_output else {}
        else:
            shapes = {"term": H, "factor" + of: H, "projected" + of: G * H}
            shapes |= {"seen" + of: 2 * self.inputs(walk.layer)} if self.window > 1 else {}
        return {name: (batch, steps, columns) for name, columns in shapes.items()}

    # ---- products with W_ih, which a subclass may have in another form ----

    def multiply_seen(
        self, ctx: LinearContext, seen: Array, weight: Array, bias: Array | None, out: Array
    ) -> None:
        """out (B, T, rows) = W_ih seen + b."""
        self.multiply(ctx, seen, weight, bias, out)

    def multiply_back_seen(self, ctx: LinearContext, delta: Array, weight: Array, out: Array) -> None:
        """out = W_ihᵀ delta, of the first rows of delta."""
        self.multiply_back(ctx, delta, weight, out)

    def multiply_sums_seen(
        self, ctx: LinearContext, delta: Array, seen: Array, out: Array, by_rows: Array
    ) -> None:
        """The gradient by W_ih, and that by a bias of each of its rows."""
        self.multiply_sums(ctx, delta, seen, out, by_rows)

    # ---- forward ----

    def terms(self, ctx: LinearContext, walk: Direction) -> tuple[Array, Array]:
        shape = *ctx.rows, self.hidden_size
        factor, term = self.factors(ctx, walk), ctx.buffer("term", shape)
        projected = self._projected(ctx, walk)
        self._project(ctx, walk, projected)
        self._launch(ctx, walk, "terms", factor, term)
        return factor, term

    def factors(self, ctx: LinearContext, walk: Direction) -> Array:
        return ctx.buffer(f"factor_{walk.name}", (*ctx.rows, self.hidden_size))

    def put(self, ctx: LinearContext, walk: Direction, state: Array, out: Array) -> None:
        if not self.cell.has_output:
            out[...] = state
            return
        own = out if out.flags.c_contiguous else ctx.buffer("put", state.shape)
        self._launch(ctx, walk, "output", state, own)
        if own is not out:
            out[...] = own

    def _launch(self, ctx: LinearContext, walk: Direction, verb: str, *arrays: Array) -> None:
        """Launch a kernel of the cell on a direction's projected input, its unit parameters and `arrays`."""
        batch, steps = ctx.rows
        given = self._projected(ctx, walk), self._unit(ctx, walk), *arrays
        ctx.device.launch(linear_kernels_of(self.cell)[verb], *given, batch * steps, self.hidden_size)

    def _projected(self, ctx: LinearContext, walk: Direction) -> Array:
        """The projected input of a direction, (B, T, G H)."""
        return ctx.buffer(f"projected_{walk.name}", (*ctx.rows, self.cell.gates * self.hidden_size))

    def _project(self, ctx: LinearContext, walk: Direction, projected: Array) -> None:
        """Fill it with W x + b of every step, and the input itself where the last gate is that."""
        columns, weight = self.weighted(walk.layer), ctx.parameters[f"weight_ih_{walk.name}"]
        own = projected
        if columns < projected.shape[2]:
            own = ctx.buffer("product", (*ctx.rows, columns))
        self.multiply_seen(ctx, self._seen(ctx, walk), weight, self._bias(ctx, walk), own)
        if own is not projected:
            projected[:, :, :columns], projected[:, :, columns:] = own, ctx.inputs[walk.layer]

    def _bias(self, ctx: LinearContext, walk: Direction) -> Array | None:
        """The biases of the gates that have weights, 0 where one has none; None without any."""
        if not self.bias:
            return None
        given, H, rows = ctx.parameters[f"bias_ih_{walk.name}"], self.hidden_size, self.weighted(walk.layer)
        if len(given) == rows:
            return given
        bias = ctx.buffer("bias", (rows,))
        bias[...] = 0
        bias.reshape(-1, H)[list(self.biased)] = given.reshape(-1, H)
        return bias

    def _seen(self, ctx: LinearContext, walk: Direction) -> Array:
        """What a direction's gates see at every step, (B, T, window I): the step before, and the present."""
        x = ctx.inputs[walk.layer]
        if self.window == 1:
            return x
        batch, steps, inputs = x.shape
        seen = ctx.buffer(f"seen_{walk.name}", (batch, steps, 2 * inputs))
        seen[:, :, :inputs] = 0
        if walk.reverse:
            seen[:, :-1, :inputs] = x[:, 1:]
        else:
            seen[:, 1:, :inputs] = x[:, :-1]
        seen[:, :, inputs:] = x
        return seen

    def formula_gates(self, seen: Any, weight: Any) -> list[Any]:
        """The gates that have weights, W_ih of what they see, in an array library's operations."""
        H = self.hidden_size
        projected = seen @ weight.T
        return [projected[..., start : start + H] for start in range(0, projected.shape[-1], H)]

    def unit_values(self, xp: Any, own: Mapping[str, Any]) -> list[Any]:
        """What the cell takes as its unit parameters, (H,) each, of a direction's parameters by name."""
        return [own[name] for name in self.unit_parameters]

    def unit_gradients(self, xp: Any, own: Mapping[str, Any], by: list[Any]) -> list[Any]:
        """The gradients by the unit parameters, from those by what the cell takes."""
        return by

    def _units_of(self, ctx: LinearContext, walk: Direction) -> dict[str, Array]:
        """A direction's unit parameters by name."""
        return {name: ctx.parameters[f"{name}_{walk.name}"] for name in self.unit_parameters}

    def _unit(self, ctx: LinearContext, walk: Direction) -> Array:
        """What the cell takes as its unit parameters, one after the other."""
        H = self.hidden_size
        unit = ctx.buffer("unit", (len(self.unit_parameters) * H,))
        for place, value in enumerate(self.unit_values(ctx.device.xp, self._units_of(ctx, walk))):
            unit[place * H : (place + 1) * H] = value
        return unit

    # ---- backward ----

    def by_state(self, ctx: LinearContext, walk: Direction, state: Array, by_output: Array) -> Array:
        if not self.cell.has_output:
            return by_output
        by_state = ctx.buffer("by_state", state.shape)
        self._launch(ctx, walk, "by_state", state, by_output, by_state)
        return by_state

    def hand_back(
        self, ctx: LinearContext, walk: Direction, state: Array, by_output: Array, by: tuple[Array, Array]
    ) -> None:
        none = ctx.buffer("none", (0,))
        own = (state, by_output) if self.cell.has_output else (none, none)
        self._launch(ctx, walk, "by_inputs", own[0], *by, own[1], self._delta(ctx, walk))

    def _delta(self, ctx: LinearContext, walk: Direction) -> Array:
        """The gradient by the projected input and the unit parameters, (B, T, (G + Q) H)."""
        columns = (self.cell.gates + len(self.unit_parameters)) * self.hidden_size
        return ctx.buffer(f"delta_{walk.name}", (*ctx.rows, columns))

    def add_by_input(self, ctx: LinearContext, walk: Direction, out: Array, first: bool) -> None:
        inputs, columns, delta = out.shape[2], self.weighted(walk.layer), self._delta(ctx, walk)
        weight, by = ctx.parameters[f"weight_ih_{walk.name}"], out
        if not first or self.window > 1:
            by = ctx.buffer("by_seen", (*ctx.rows, self.window * inputs))
        self.multiply_back_seen(ctx, delta, weight, by)
        if by is not out:
            out[...] = by[:, :, -inputs:] if first else out + by[:, :, -inputs:]
        if self.window > 1 and walk.reverse:
            out[:, 1:] += by[:, :-1, :inputs]
        elif self.window > 1:
            out[:, :-1] += by[:, 1:, :inputs]
        if self.skips(inputs):
            out += delta[:, :, columns : columns + inputs]

    def weight_gradients(self, ctx: LinearContext, walk: Direction) -> None:
        xp, of, H = ctx.device.xp, f"_{walk.name}", self.hidden_size
        delta, by_rows = self._delta(ctx, walk), ctx.buffer("by_rows", (self.weighted(walk.layer),))
        seen, by_weight = self._seen(ctx, walk), ctx.gradients["weight_ih" + of]
        self.multiply_sums_seen(ctx, delta, seen, by_weight, by_rows)
        if self.bias:
            own = ctx.gradients["bias_ih" + of]
            own[...] = by_rows if own.size == by_rows.size else self._of_biased(by_rows)
        if self.unit_parameters:
            by_units = xp.sum(delta[:, :, self.cell.gates * H :], axis=(0, 1)).reshape(-1, H)
            found = self.unit_gradients(xp, self._units_of(ctx, walk), list(by_units))
            for name, gradient in zip(self.unit_parameters, found, strict=True):
                ctx.gradients[name + of][...] = gradient

    def _of_biased(self, rows: Array) -> Array:
        """Of numbers, one a row of W_ih, those of the gates that have a bias."""
        return rows.reshape(-1, self.hidden_size)[list(self.biased)].reshape(-1)
