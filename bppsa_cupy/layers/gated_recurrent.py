"""Linear recurrent layers of a cell, whose gates, which read the input, make factors and terms."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from types import FunctionType
from typing import Any

import numpy as np

from bppsa_cupy.arguments import is_one_of
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers.base import Shape
from bppsa_cupy.layers.linear_recurrent import Direction, Library, LinearContext, LinearRecurrent
from bppsa_cupy.raw_kernels.linear.form import LinearForm
from bppsa_cupy.raw_kernels.linear.kernels import linear_kernels_of
from bppsa_cupy.raw_kernels.linear_cells import LINEAR_FORMS


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

    def skips(self, inputs: int) -> bool:
        """Whether the last gate is the input itself, of so many features, and has no weights."""
        return False

    def weighted(self, layer: int) -> int:
        """Rows of an inner layer's W_ih."""
        return (self.cell.gates - self.skips(self.inputs(layer))) * self.hidden_size

    def parameter_shapes(self) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {}
        for walk in self.walks():
            of, inputs = f"_{walk.name}", self.inputs(walk.layer)
            shapes["weight_ih" + of] = (self.weighted(walk.layer), inputs)
            if self.bias:
                shapes["bias_ih" + of] = (len(self.biased) * self.hidden_size,)
            shapes |= {name + of: (self.hidden_size,) for name in self.unit_parameters}
        return shapes

    # ---- forward ----

    def terms(self, ctx: LinearContext, walk: Direction) -> tuple[Array, Array]:
        shape = *ctx.rows, self.hidden_size
        factor, term = self.factors(ctx, walk), ctx.buffer("term", shape)
        self._project(ctx, walk, self._projected(ctx, walk))
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
        self.multiply(ctx, ctx.inputs[walk.layer], weight, self._bias(ctx, walk), own)
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

    def cell_in(self, library: Library) -> Any:
        # The text of the cell's twins is plain Python: here in the library's names.
        names = vars(library.functions)
        functions = (self.cell.functions.terms, self.cell.functions.output)
        return [one and FunctionType(one.__code__, names, one.__name__) for one in functions]

    def direction_in(
        self, library: Library, cell: Any, own: Any, walk: Direction, x: Any, lengths: Any, first: Any
    ) -> tuple[Any, Any]:
        H, (terms, output) = self.hidden_size, cell
        projected = x @ own["weight_ih"].T
        gates = [projected[..., start : start + H] for start in range(0, projected.shape[-1], H)]
        if self.skips(x.shape[2]):
            gates = [*gates, x]
        if self.bias:
            for place, gate in enumerate(self.biased):
                gates[gate] = gates[gate] + own["bias_ih"][place * H : (place + 1) * H]
        unit = self.unit_values(library.module, own)
        (factor,), (term,) = terms(gates, unit)
        h = library.scan(factor, term, first, walk.reverse, lengths)
        return (h if output is None else output(gates, (h,), unit)[0]), h

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
        by = out if first else ctx.buffer("by_seen", out.shape)
        self.multiply_back(ctx, delta, ctx.parameters[f"weight_ih_{walk.name}"], by)
        if not first:
            out += by
        if self.skips(inputs):
            out += delta[:, :, columns : columns + inputs]

    def weight_gradients(self, ctx: LinearContext, walk: Direction) -> None:
        xp, of, H = ctx.device.xp, f"_{walk.name}", self.hidden_size
        delta, by_rows = self._delta(ctx, walk), ctx.buffer("by_rows", (self.weighted(walk.layer),))
        self.multiply_sums(ctx, delta, ctx.inputs[walk.layer], ctx.gradients["weight_ih" + of], by_rows)
        if self.bias:
            own = ctx.gradients["bias_ih" + of]
            if own.size != by_rows.size:
                by_rows = by_rows.reshape(-1, H)[list(self.biased)].reshape(-1)
            own[...] = by_rows
        if self.unit_parameters:
            by_units = xp.sum(delta[:, :, self.cell.gates * H :], axis=(0, 1)).reshape(-1, H)
            found = self.unit_gradients(xp, self._units_of(ctx, walk), list(by_units))
            for name, gradient in zip(self.unit_parameters, found, strict=True):
                ctx.gradients[name + of][...] = gradient


CANDIDATES = ("linear", "positive")


class _Minimal(GatedRecurrent):
    """What both share: the candidate, W_h x + b_h as it is ("linear"), or g of it ("positive"), g(x) being
    x + 1/2 from 0 on and σ(x) below."""

    _name: str

    def __init__(
        self, input_size: int, hidden_size: int, *arguments: Any, candidate: str = "linear", **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, *arguments, **options)
        if not is_one_of(candidate, CANDIDATES):
            takes = " or ".join(map(repr, CANDIDATES))
            raise ShapeError(f"{type(self).__name__} got candidate={candidate!r}: it takes {takes}")
        self.candidate = candidate

    @property
    def cell(self) -> LinearForm:
        return LINEAR_FORMS[self._name + ("_positive" if self.candidate == "positive" else "")]

    def config(self) -> dict[str, Any]:
        return {**super().config(), "candidate": self.candidate}


class MinGRU(_Minimal):
    """minGRU (Feng et al. 2024, section 3.1): h_t = (1 - z_t) h_{t-1} + z_t h̃_t, z = σ(W_z x + b_z).

    candidate  "linear", h̃ = W_h x + b_h, as in section 3.1; "positive", h̃ = g(W_h x + b_h), as in appendix
               B.3 and in code that scans logarithms

    The other arguments are those of `GatedRecurrent`. Parameters a layer and direction, gates stacked as h,
    z: weight_ih_l0 (2 H, F), bias_ih_l0 (2 H,).
    """

    _name = "mingru"


class MinLSTM(_Minimal):
    """minLSTM (Feng et al. 2024, section 3.2): h_t = f'_t h_{t-1} + i'_t h̃_t, f' and i' being f = σ(W_f x +
    b_f) and i = σ(W_i x + b_i) over their sum; W x + b below -85 counts as that.

    Arguments are those of `MinGRU`. Parameters a layer and direction, gates stacked as f, i, h: weight_ih_l0
    (3 H, F), bias_ih_l0 (3 H,).
    """

    _name = "minlstm"


class SRU(GatedRecurrent):
    """A simple recurrent unit (Lei et al. 2018) whose gates read the input alone, as `v1=True` of its code:
    c_t = f c_{t-1} + (1 - f) W_c x, h_t = r c_t + (1 - r) x, f = σ(W_f x + b_f), r = σ(W_r x + b_r).

    Arguments are those of `GatedRecurrent`. Parameters a layer and direction, gates stacked as c,
    f, r: weight_ih_l0 (3 H, F), bias_ih_l0 (2 H,) of f and r. Where F is not H, weight_ih_l0 is (4 H, F), and
    its last rows make of x what is added in its place. Its state is c.
    """

    cell = LINEAR_FORMS["sru"]
    biased = (1, 2)

    def skips(self, inputs: int) -> bool:
        return inputs == self.hidden_size


class QRNN(GatedRecurrent):
    """A quasi-recurrent network's layer with fo-pooling (Bradbury et al. 2017, equation 4): c_t = f c_{t-1} +
    (1 - f) z, h_t = o c_t, z = tanh(W_z x + b_z), f and o = σ(likewise).

    The gates see the present input only. Arguments are those of `GatedRecurrent`. Parameters
    a layer and direction, gates stacked as z, f, o: weight_ih_l0 (3 H, F), bias_ih_l0 (3 H,). Its state is c.
    """

    cell = LINEAR_FORMS["qrnn"]


#: c of the paper: how strong the recurrence gate makes the decay.
SHARPNESS = 8.0
#: |a| of a fresh layer at an open gate, uniform by its square.
LEAST_RADIUS, MOST_RADIUS = 0.9, 0.999


class RGLRU(GatedRecurrent):
    """The real-gated linear recurrent unit (De et al. 2024, section 2.4): h_t = a_t h_{t-1} + sqrt(1 - a_t²)
    i_t x_t, a = exp(-8 softplus(Λ) r), r = σ(W_a x + b_a), i = σ(W_x x + b_x). The derivative of the root is
    1000 at most (appendix A). It has as many units as the input has features.

    Arguments are those of `GatedRecurrent`, without hidden_size; there is one inner layer of one direction.
    Parameters: weight_ih_l0 (2 H, H), W_a before W_x, from the normal distribution with variance 1 / H;
    bias_ih_l0 (2 H,), 0; a_param_l0 (H,), Λ, so that a² at r = 1 / 8 is uniform in 0.9² to 0.999².
    """

    cell = LINEAR_FORMS["rglru"]
    unit_parameters = ("a_param",)
    biased = (0, 1)

    def __init__(self, input_size: int, *, bias: bool = True, **options: Any) -> None:
        super().__init__(input_size, input_size, bias=bias, **options)
        if self.num_layers > 1 or self.bidirectional:
            raise ShapeError(
                f"RGLRU got num_layers={self.num_layers} and bidirectional={self.bidirectional}: it takes "
                "one layer of one direction; put several in a network"
            )

    def config(self) -> dict[str, Any]:
        config = super().config()
        for name in ("hidden_size", "num_layers", "bidirectional"):
            del config[name]
        return config

    def skips(self, inputs: int) -> bool:
        return True

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        shapes, values = self.parameter_shapes(), {}
        deviation = (1 / self.hidden_size) ** 0.5
        values["weight_ih_l0"] = deviation * generator.standard_normal(shapes["weight_ih_l0"])
        if self.bias:
            values["bias_ih_l0"] = np.zeros(shapes["bias_ih_l0"])
        squares = generator.uniform(LEAST_RADIUS**2, MOST_RADIUS**2, self.hidden_size)
        values["a_param_l0"] = np.log(np.expm1(-0.5 * np.log(squares)))
        return values

    # ---- Λ as the cell takes it ----

    def unit_values(self, xp: Any, own: Mapping[str, Any]) -> list[Any]:
        return [-SHARPNESS * _softplus(xp, own["a_param"])]

    def unit_gradients(self, xp: Any, own: Mapping[str, Any], by: list[Any]) -> list[Any]:
        return [-SHARPNESS * by[0] / (1 + xp.exp(-own["a_param"]))]


def _softplus(xp: Any, x: Any) -> Any:
    """log(1 + e^x), of numbers that do not overflow."""
    return xp.log1p(xp.exp(-abs(x))) + (x + abs(x)) / 2
