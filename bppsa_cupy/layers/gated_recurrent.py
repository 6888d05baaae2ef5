"""Linear recurrent layers of a cell, whose gates, which read the input, make factors and terms."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from types import FunctionType
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_choice
from bppsa_cupy.devices import Array
from bppsa_cupy.layers.base import Shape
from bppsa_cupy.layers.linear_recurrent import Library, LinearContext, LinearRecurrent
from bppsa_cupy.raw_kernels.linear.form import LinearForm
from bppsa_cupy.raw_kernels.linear.kernels import linear_kernels_of
from bppsa_cupy.raw_kernels.linear_cells import LINEAR_FORMS


class GatedRecurrent(LinearRecurrent):
    """Base class of linear recurrent layers with gates W_ih x + b_ih.

    The gates determine the factor a and the term b of each unit's recurrence c' = a c + b. The output of the
    layer is the state c, or a function of state and gates that the cell defines.

    Parameters
    ----------
    input_size, hidden_size, batch_first, outputs, forward_method
        See `LinearRecurrent`. F is the number of input features and H the number of units.
    bias : bool, default: True
        Whether the gates in `biased` have biases.

    Notes
    -----
    Parameters, for G gates in the order of the cell: weight_ih_l0 (G H, F), bias_ih_l0 with H values per gate
    in `biased`, and NAME_l0 (H,) for each parameter of the cell.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> issubclass(bp.SRU, bp.GatedRecurrent)
    True
    >>> bp.SRU(5, 5).parameter_shapes()
    {'weight_ih_l0': (15, 5), 'bias_ih_l0': (10,)}
    """

    @property
    @abc.abstractmethod
    def cell(self) -> LinearForm:
        """The linear cell of the layer, in the form from which kernels are generated."""

    @property
    def unit_parameters(self) -> tuple[str, ...]:
        """Names of the learned parameters with one value per unit, besides weights and biases."""
        return ()

    @property
    def biased(self) -> tuple[int, ...]:
        """The indices of the gates that have a bias if `bias` is True."""
        return tuple(range(self.cell.gates))

    @property
    def skips(self) -> bool:
        """Whether the last gate is the input itself, without weights."""
        return False

    @property
    def weighted(self) -> int:
        """The number of rows of W_ih."""
        return (self.cell.gates - self.skips) * self.hidden_size

    def parameter_shapes(self) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {"weight_ih_l0": (self.weighted, self.input_size)}
        if self.bias:
            shapes["bias_ih_l0"] = (len(self.biased) * self.hidden_size,)
        return shapes | {f"{name}_l0": (self.hidden_size,) for name in self.unit_parameters}

    # ---- forward ----

    def terms(self, ctx: LinearContext) -> tuple[Array, Array]:
        shape = *ctx.rows, self.hidden_size
        factor, term = self.factors(ctx), ctx.buffer("term", shape)
        self._project(ctx, self._projected(ctx))
        self._launch(ctx, "terms", factor, term)
        return factor, term

    def factors(self, ctx: LinearContext) -> Array:
        return ctx.buffer("factor", (*ctx.rows, self.hidden_size))

    def put(self, ctx: LinearContext, state: Array, out: Array) -> None:
        if not self.cell.has_output:
            out[...] = state
            return
        result = out if out.flags.c_contiguous else ctx.buffer("put", state.shape)
        self._launch(ctx, "output", state, result)
        if result is not out:
            out[...] = result

    def _launch(self, ctx: LinearContext, verb: str, *arrays: Array) -> None:
        """Launch a kernel of the cell on the projected input, its unit parameters and `arrays`."""
        batch, steps = ctx.rows
        inputs = self._projected(ctx), self._unit(ctx), *arrays
        ctx.device.launch(linear_kernels_of(self.cell)[verb], *inputs, batch * steps, self.hidden_size)

    def _projected(self, ctx: LinearContext) -> Array:
        """The projected input, (B, T, G H)."""
        return ctx.buffer("projected", (*ctx.rows, self.cell.gates * self.hidden_size))

    def _project(self, ctx: LinearContext, projected: Array) -> None:
        """Fill it with W x + b of every step, and the input itself where the last gate is that."""
        columns, weight = self.weighted, ctx.parameters["weight_ih_l0"]
        product = projected
        if columns < projected.shape[2]:
            product = ctx.buffer("product", (*ctx.rows, columns))
        self.multiply(ctx, ctx.input, weight, self._bias(ctx), product)
        if product is not projected:
            projected[:, :, :columns], projected[:, :, columns:] = product, ctx.input

    def _bias(self, ctx: LinearContext) -> Array | None:
        """The biases of the gates that have weights, 0 where one has none; None without any."""
        if not self.bias:
            return None
        learned, H, rows = ctx.parameters["bias_ih_l0"], self.hidden_size, self.weighted
        if len(learned) == rows:
            return learned
        bias = ctx.buffer("bias", (rows,))
        bias[...] = 0
        bias.reshape(-1, H)[list(self.biased)] = learned.reshape(-1, H)
        return bias

    def cell_in(self, library: Library) -> Any:
        # The text of the cell's twins is plain Python: here in the library's names.
        names = vars(library.functions)
        functions = (self.cell.functions.terms, self.cell.functions.output)
        return [
            function and FunctionType(function.__code__, names, function.__name__) for function in functions
        ]

    def scan_in(
        self, library: Library, cell: Any, parameters: Any, x: Any, lengths: Any, first: Any
    ) -> tuple[Any, Any]:
        H, (terms, output) = self.hidden_size, cell
        weight, bias = parameters["weight_ih"], parameters["bias_ih"] if self.bias else None
        has_all = bias is not None and len(bias) == len(weight)
        gates = list(library.project(x, weight, bias if has_all else None, H))
        if self.skips:
            gates = [*gates, x]
        if bias is not None and not has_all:
            for place, gate in enumerate(self.biased):
                gates[gate] = gates[gate] + bias[place * H : (place + 1) * H]
        unit = self.unit_values(library.module, parameters)
        (factor,), (term,) = terms(gates, unit)
        h = library.scan(factor, term, first, False, lengths)
        return (h if output is None else output(gates, (h,), unit)[0]), h

    def unit_values(self, xp: Any, parameters: Mapping[str, Any]) -> list[Any]:
        """Return the values that the cell uses per unit, (H,) each, computed from the learned parameters.

        `xp` is the array module: NumPy, CuPy, PyTorch or jax.numpy. `parameters` maps the names in
        `unit_parameters` to the learned arrays. The default returns these arrays unchanged.
        """
        return [parameters[name] for name in self.unit_parameters]

    def unit_gradients(self, xp: Any, parameters: Mapping[str, Any], by: list[Any]) -> list[Any]:
        """Return a list of gradients, (H,) each, with respect to the learned `unit_parameters`.

        `xp` and `parameters` are the arguments of `unit_values`. `by` contains the gradients with respect to
        the arrays that `unit_values` returns. The default returns `by`, because `unit_values` returns the
        parameters unchanged.
        """
        return by

    def _units_of(self, ctx: LinearContext) -> dict[str, Array]:
        """The unit parameters by name."""
        return {name: ctx.parameters[f"{name}_l0"] for name in self.unit_parameters}

    def _unit(self, ctx: LinearContext) -> Array:
        """What the cell takes as its unit parameters, one after the other."""
        H = self.hidden_size
        unit = ctx.buffer("unit", (len(self.unit_parameters) * H,))
        for place, value in enumerate(self.unit_values(ctx.device.xp, self._units_of(ctx))):
            unit[place * H : (place + 1) * H] = value
        return unit

    # ---- backward ----

    def by_state(self, ctx: LinearContext, state: Array, by_output: Array) -> Array:
        if not self.cell.has_output:
            return by_output
        by_state = ctx.buffer("by_state", state.shape)
        self._launch(ctx, "by_state", state, by_output, by_state)
        return by_state

    def hand_back(self, ctx: LinearContext, state: Array, by_output: Array, by: tuple[Array, Array]) -> None:
        none = ctx.buffer("none", (0,))
        outputs = (state, by_output) if self.cell.has_output else (none, none)
        self._launch(ctx, "by_inputs", outputs[0], *by, outputs[1], self._delta(ctx))

    def _delta(self, ctx: LinearContext) -> Array:
        """The gradient with respect to the projected input and the unit parameters, (B, T, (G + Q) H)."""
        columns = (self.cell.gates + len(self.unit_parameters)) * self.hidden_size
        return ctx.buffer("delta", (*ctx.rows, columns))

    def write_by_input(self, ctx: LinearContext, out: Array) -> None:
        delta = self._delta(ctx)
        self.multiply_back(ctx, delta, ctx.parameters["weight_ih_l0"], out)
        if self.skips:
            out += delta[:, :, self.weighted : self.weighted + self.input_size]

    def weight_gradients(self, ctx: LinearContext) -> None:
        xp, H = ctx.device.xp, self.hidden_size
        delta, by_rows = self._delta(ctx), ctx.buffer("by_rows", (self.weighted,))
        self.multiply_sums(ctx, delta, ctx.input, ctx.gradients["weight_ih_l0"], by_rows)
        if self.bias:
            by_bias = ctx.gradients["bias_ih_l0"]
            if by_bias.size != by_rows.size:
                by_rows = by_rows.reshape(-1, H)[list(self.biased)].reshape(-1)
            by_bias[...] = by_rows
        if self.unit_parameters:
            by_units = xp.sum(delta[:, :, self.cell.gates * H :], axis=(0, 1)).reshape(-1, H)
            gradients = self.unit_gradients(xp, self._units_of(ctx), list(by_units))
            for name, gradient in zip(self.unit_parameters, gradients, strict=True):
                ctx.gradients[f"{name}_l0"][...] = gradient


#: Candidates of MinGRU, and the cells.
CANDIDATES = {"linear": "mingru", "positive": "mingru_positive"}


class MinGRU(GatedRecurrent):
    """minGRU (Feng et al. 2024, section 3.1): h' = (1 - z) h + z h̃, where z = σ(W_z x + b_z).

    Parameters
    ----------
    input_size, hidden_size : int
        F input features and H units.
    *arguments
        `bias` and `batch_first` of `GatedRecurrent`.
    candidate : {"linear", "positive"}, default: "linear"
        "linear" is h̃ = W_h x + b_h. "positive" is h̃ = g(W_h x + b_h) with g(x) = x + 1/2 for x ≥ 0 and
        σ(x) for x < 0 (appendix B.3), as in log-space implementations.
    **options
        `outputs` and `forward_method` of `GatedRecurrent`.

    Notes
    -----
    Parameters, with gates in the order h, z: weight_ih_l0 (2 H, F) and bias_ih_l0 (2 H,).

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> layer = bp.MinGRU(3, 5)
    >>> layer.output_shape((7, 3)), layer.parameter_shapes()["weight_ih_l0"]
    ((7, 5), (10, 3))
    """

    arguments = (*GatedRecurrent.arguments, "candidate")

    def __init__(
        self, input_size: int, hidden_size: int, *arguments: Any, candidate: str = "linear", **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, *arguments, **options)
        self.candidate = as_choice("MinGRU", "candidate", candidate, CANDIDATES)

    @property
    def cell(self) -> LinearForm:
        return LINEAR_FORMS[CANDIDATES[self.candidate]]


class MinLSTM(GatedRecurrent):
    """minLSTM (Feng et al. 2024, section 3.2): h' = a h + (1 - a) h̃.

    a = f / (f + i), f = σ(W_f x + b_f), i = σ(W_i x + b_i), h̃ = W_h x + b_h.

    Parameters
    ----------
    input_size, hidden_size : int
        F input features and H units.
    bias, batch_first, outputs, forward_method
        Biases, layout, returned steps and the method over time: see `GatedRecurrent`.

    Notes
    -----
    Parameters, with gates in the order f, i, h: weight_ih_l0 (3 H, F) and bias_ih_l0 (3 H,). In the gates f
    and i, values of W x + b below -85 are replaced by -85.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.MinLSTM(3, 5).parameter_shapes()["weight_ih_l0"]
    (15, 3)
    """

    cell = LINEAR_FORMS["minlstm"]


class SRU(GatedRecurrent):
    """Simple recurrent unit (Lei et al. 2018), whose gates only read the input.

    c' = f c + (1 - f) W_c x, h = r c' + (1 - r) x, f = σ(W_f x + b_f), r = σ(W_r x + b_r).

    Parameters
    ----------
    input_size, hidden_size : int
        F input features and H units.
    bias, batch_first, outputs, forward_method
        Biases, layout, returned steps and the method over time: see `GatedRecurrent`.

    Notes
    -----
    This is the variant `v1=True` of the authors' code. Parameters, with gates in the order c, f, r:
    weight_ih_l0 (3 H, F) and bias_ih_l0 (2 H,), the biases of f and r. If F differs from H, weight_ih_l0 is
    (4 H, F): its last H rows project x to the hidden size for the skip connection (1 - r) x. The state is c.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.SRU(3, 5).parameter_shapes()["weight_ih_l0"]
    (20, 3)
    """

    cell = LINEAR_FORMS["sru"]
    biased = (1, 2)

    @property
    def skips(self) -> bool:
        return self.input_size == self.hidden_size


class QRNN(GatedRecurrent):
    """Quasi-recurrent layer with fo-pooling (Bradbury et al. 2017, equation 4).

    c' = f c + (1 - f) z, h = o c', z = tanh(W_z x + b_z), f and o = σ(W x + b).

    Parameters
    ----------
    input_size, hidden_size : int
        F input features and H units.
    bias, batch_first, outputs, forward_method
        Biases, layout, returned steps and the method over time: see `GatedRecurrent`.

    Notes
    -----
    The gates read only the current input (window size 1). Parameters, with gates in the order z, f, o:
    weight_ih_l0 (3 H, F) and bias_ih_l0 (3 H,). The state is c.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.QRNN(3, 5).parameter_shapes()["weight_ih_l0"]
    (15, 3)
    """

    cell = LINEAR_FORMS["qrnn"]


#: c of the paper: how strong the recurrence gate makes the decay.
SHARPNESS = 8.0
#: |a| of a fresh layer at an open gate, uniform by its square.
LEAST_RADIUS, MOST_RADIUS = 0.9, 0.999


class RGLRU(GatedRecurrent):
    """Real-gated linear recurrent unit (De et al. 2024, section 2.4), with as many units as features.

    h' = a h + sqrt(1 - a²) i x, a = exp(-8 softplus(Λ) r), r = σ(W_a x + b_a), i = σ(W_x x + b_x).

    Parameters
    ----------
    input_size : int
        F, which is both the number of features and the number of units H.
    bias : bool, default: True
        Whether the gates have biases.
    **options
        `batch_first`, `outputs` and `forward_method` of `GatedRecurrent`.

    Notes
    -----
    Parameters: weight_ih_l0 (2 H, H) with the rows of W_a before those of W_x, bias_ih_l0 (2 H,), and
    a_param_l0 (H,), which is Λ. Initial weights are normal with variance 1 / H, and initial biases are 0. Λ
    is initialised such that a² at r = 1 / 8 is uniform in [0.9², 0.999²]. The derivative of the square root
    is limited to 1000 (appendix A).

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.RGLRU(4).parameter_shapes()
    {'weight_ih_l0': (8, 4), 'bias_ih_l0': (8,), 'a_param_l0': (4,)}
    """

    arguments = tuple(name for name in GatedRecurrent.arguments if name != "hidden_size")
    cell = LINEAR_FORMS["rglru"]
    unit_parameters = ("a_param",)
    biased = (0, 1)
    skips = True

    def __init__(self, input_size: int, *, bias: bool = True, **options: Any) -> None:
        super().__init__(input_size, input_size, bias=bias, **options)

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

    def unit_values(self, xp: Any, parameters: Mapping[str, Any]) -> list[Any]:
        return [-SHARPNESS * _softplus(xp, parameters["a_param"])]

    def unit_gradients(self, xp: Any, parameters: Mapping[str, Any], by: list[Any]) -> list[Any]:
        return [-SHARPNESS * by[0] / (1 + xp.exp(-parameters["a_param"]))]


def _softplus(xp: Any, x: Any) -> Any:
    """log(1 + e^x), of numbers that do not overflow."""
    return xp.log1p(xp.exp(-abs(x))) + (x + abs(x)) / 2
