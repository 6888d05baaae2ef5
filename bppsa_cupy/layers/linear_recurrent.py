"""Linear recurrent layers, c_t = a_t c_{t-1} + b_t, where a and b follow from the input: a scan each way."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_choice
from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array
from bppsa_cupy.layers.base import Shape, StepJacobians
from bppsa_cupy.layers.recurrent import Recurrent, RecurrentContext
from bppsa_cupy.raw_kernels.linear.form import LinearForm
from bppsa_cupy.raw_kernels.linear.kernels import linear_kernels_of
from bppsa_cupy.raw_kernels.linear_cells import LINEAR_FORMS
from bppsa_cupy.timescan import products
from bppsa_cupy.timescan.chunked import WAYS
from bppsa_cupy.timescan.linear_scan import LinearScan


@dataclass
class LinearContext(RecurrentContext):
    """A linear recurrent layer's part of a pass.

    Attributes
    ----------
    input : array, (B, T, F)
        The input, with 0 after the end of each sample.
    forward, backward : str
        Method and reason of the latest passes.
    """

    input: Any = field(default=None, repr=False)
    forward: str = ""
    backward: str = ""

    @property
    def forward_ways(self) -> tuple[str, ...]:
        return (self.forward,)

    @property
    def backward_ways(self) -> tuple[str, ...]:
        return (self.backward,) if self.went_back else ()

    @property
    def rows(self) -> tuple[int, int]:
        """(B, T)"""
        batch, steps = self.input.shape[:2]
        return batch, steps

    def let_go(self) -> None:
        super().let_go()
        self.input = None

    def clear(self, rows: Array) -> None:
        """Set the rows of `rows` (B, T, columns) after the end of each sample to 0."""
        if self.lengths is not None:
            xp = self.device.xp
            after = xp.arange(rows.shape[1])[None, :] >= self.lengths[:, None]
            xp.copyto(rows, 0, where=after[:, :, None])

    @property
    def ends(self) -> tuple[Any, Any]:
        """The index of the last step of each sample in arrays (B, T, ...)."""
        if self.lengths is None:
            return slice(None), -1
        return self.device.xp.arange(len(self.lengths)), self.lengths - 1


def _by_row(rows: Array) -> Array:
    """(B, T, columns) as so many steps of one sample, (B T, columns, 1)."""
    return rows.reshape(-1, rows.shape[2], 1)


class LinearRecurrent(Recurrent):
    """Base class of linear recurrent layers: each unit computes c' = a c + b.

    The factors a and terms b depend only on the input. Here the gates W_ih x + b_ih determine them. The
    output of the layer is the state c, or a function of state and gates that the cell defines. The forward
    and backward passes over time are exact scans, computed serially or in parallel chunks of time steps. The
    Jacobian of a step is diagonal. A layer has one direction. Stack several layers in a network.

    Parameters
    ----------
    input_size, hidden_size, bias, batch_first, outputs
        See `Recurrent`. F is the number of input features and H the number of units.
    forward_method : {"auto", "serial", "chunked"}, default: "auto"
        "chunked" computes chunks of time steps in parallel. "auto" selects one of the other two.

    Notes
    -----
    Parameters, for G gates in the order of the cell: weight_ih_l0 (G H, F), bias_ih_l0 with H values per gate
    in `biased`, and NAME_l0 (H,) for each parameter of the cell. Units are complex if the class attribute
    `paired` is True.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> issubclass(bp.SRU, bp.LinearRecurrent)
    True
    >>> bp.SRU(5, 5).parameter_shapes(), bp.SRU(5, 5).step_pattern.nnz
    ({'weight_ih_l0': (15, 5), 'bias_ih_l0': (10,)}, 5)
    """

    context = LinearContext
    backward_reads = ("input", "states")
    forward_methods = ("auto", "serial", "chunked")
    paired = False

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

    @property
    def state_count(self) -> int:
        return 1

    @property
    def reals(self) -> int:
        """R, the number of real values in one state: H, or 2 H for complex units."""
        return self.hidden_size * (2 if self.paired else 1)

    @property
    def step_pattern(self) -> Pattern:
        if not self.paired:
            return Pattern.diagonal(self.hidden_size)
        pairs = np.arange(self.reals).reshape(-1, 2)
        return Pattern((self.reals,) * 2, np.arange(0, 2 * self.reals + 1, 2), np.repeat(pairs, 2, 0).ravel())

    def state_dtype(self, dtype: np.dtype) -> np.dtype:
        return np.result_type(dtype, np.complex64) if self.paired else dtype

    # ---- products: a step of a sample is a row, which has the same bits wherever it lies ----

    def multiply(
        self, ctx: LinearContext, rows: Array, weight: Array, bias: Array | None, out: Array
    ) -> None:
        """Write weight @ row + bias into `out` for each row of `rows`.

        Shapes: rows (B, T, I), weight (O, I), bias (O,) or None, out (B, T, O).
        """
        products.project(ctx.device, _by_row(rows), weight, bias, _by_row(out))()

    def multiply_back(self, ctx: LinearContext, rows: Array, weight: Array, out: Array) -> None:
        """Write weight.T @ row[:O] into `out` for each row of `rows`.

        Shapes: rows (B, T, at least O), weight (O, I), out (B, T, I).
        """
        products.project(ctx.device, _by_row(rows), weight, None, _by_row(out), transposed=True)()

    def multiply_sums(
        self, ctx: LinearContext, rows: Array, others: Array, out: Array, sums_alone: Array | None = None
    ) -> None:
        """Sum the outer products row[:O] otherᵀ over samples and time steps, and write the sum to `out`.

        `row` and `other` are rows of `rows` and `others`. `sums_alone`, if not None, gets the sum of row[:O].
        Shapes: rows (B, T, at least O), others (B, T, I), out (O, I), sums_alone (O,).
        """
        by_row, device = _by_row(rows), ctx.device
        size = products.workspace_size(device, len(by_row), 1, *out.shape)
        sums = ctx.buffer("sums", (size,))
        products.weight_gradient(device, by_row, 0, _by_row(others), sums, out, sums_alone)()

    # ---- forward ----

    def forward(self, ctx: LinearContext, x: Array) -> Array:
        ctx.went_back = False
        if ctx.lengths is None:
            ctx.input = ctx.device.xp.ascontiguousarray(x)
        else:
            ctx.input = ctx.buffer("input_0", x.shape)
            ctx.input[...] = x
            ctx.clear(ctx.input)
        shape = *ctx.rows, self.output_size
        factor, term = self.terms(ctx)
        state = ctx.buffer("state", (*ctx.rows, self.reals))
        scan = self._scan(ctx, factor, self.forward_method)
        ctx.forward = f"l0: {scan.choice('forward')}"
        scan.forward(term, self._initial(ctx), state)
        after = ctx.buffer("states_0", (1, len(x), self.hidden_size), self.state_dtype(ctx.dtype))
        after[0] = state[ctx.ends].view(after.dtype)
        if self.outputs == "last":
            y, every = ctx.buffer("output", (len(x), self.output_size)), ctx.buffer("put", shape)
            self.put(ctx, state, every)
            y[...] = every[ctx.ends]
        else:
            y = ctx.buffer("output", shape)
            self.put(ctx, state, y)
            ctx.clear(y)
        ctx.saved.update(input=x, output=y, states=after)
        ctx.saved.pop("state_gradients", None)
        return y

    def terms(self, ctx: LinearContext) -> tuple[Array, Array]:
        """Return the factors a (B or 1, T or 1, R) and terms b (B, T, R) for the input in `ctx`.

        R (`reals`) is the number of real values in one state.
        """
        product = projected = self._projected(ctx)
        columns, weight = self.weighted, ctx.parameters["weight_ih_l0"]
        if self.skips:  # the last gate is the input itself
            product = ctx.buffer("product", (*ctx.rows, columns))
        bias = ctx.parameters["bias_ih_l0"] if self.bias else None
        if bias is not None and len(bias) < columns:  # the bias of gates without one is 0
            learned, bias = bias.reshape(-1, self.hidden_size), ctx.buffer("bias", (columns,))
            bias[...] = 0
            bias.reshape(-1, self.hidden_size)[list(self.biased)] = learned
        self.multiply(ctx, ctx.input, weight, bias, product)
        if self.skips:
            projected[:, :, :columns], projected[:, :, columns:] = product, ctx.input
        factor, term = self.factors(ctx), ctx.buffer("term", (*ctx.rows, self.hidden_size))
        self._launch(ctx, "terms", factor, term)
        return factor, term

    def factors(self, ctx: LinearContext) -> Array:
        """Return the factors a of the forward pass of `ctx`, (B or 1, T or 1, R), where R is `reals`."""
        return ctx.buffer("factor", (*ctx.rows, self.hidden_size))

    def put(self, ctx: LinearContext, state: Array, out: Array) -> None:
        """Write the output to `out`, (B, T, `output_size`), computed from the states `state`, (B, T, R)."""
        if not self.cell.has_output:
            out[...] = state
            return
        result = out if out.flags.c_contiguous else ctx.buffer("put", state.shape)
        self._launch(ctx, "output", state, result)
        if result is not out:
            out[...] = result

    def _launch(self, ctx: LinearContext, verb: str, *arrays: Array) -> None:
        """Launch a kernel of the cell on the projected input, its unit parameters and `arrays`."""
        (batch, steps), H = ctx.rows, self.hidden_size
        unit = ctx.buffer("unit", (len(self.unit_parameters) * H,))
        for place, value in enumerate(self.unit_values(ctx.device.xp, self._units_of(ctx))):
            unit[place * H : (place + 1) * H] = value
        inputs = self._projected(ctx), unit, *arrays
        ctx.device.launch(linear_kernels_of(self.cell)[verb], *inputs, batch * steps, H)

    def _projected(self, ctx: LinearContext) -> Array:
        """The projected input, (B, T, G H)."""
        return ctx.buffer("projected", (*ctx.rows, self.cell.gates * self.hidden_size))

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

    def _scan(self, ctx: LinearContext, factor: Array, method: str) -> LinearScan:
        (batch, steps), lengths = ctx.rows, ctx.lengths
        if lengths is None:
            lengths = ctx.buffer("whole", (batch,), np.int64)
            lengths[...] = steps
        resets = ctx.buffer("resets", (0, steps), np.uint8)
        return LinearScan(
            ctx.device, factor, batch, steps, self.reals, lengths, resets, self.paired, False, method
        )

    def _initial(self, ctx: LinearContext) -> Array:
        """The state before the first step, (B, R)."""
        initial = ctx.buffer("initial", (ctx.rows[0], self.reals))
        initial[...] = 0 if ctx.initial is None else self._as_reals(ctx, ctx.initial[0][0])
        return initial

    @staticmethod
    def _as_reals(ctx: LinearContext, states: Array) -> Array:
        """States (B, H) as (B, R) reals."""
        return ctx.device.xp.ascontiguousarray(states).view(ctx.dtype)

    # ---- backward ----

    def backward(self, ctx: LinearContext, gradient: Array, want_input: bool) -> Array | None:
        self._go_back(ctx, gradient)
        result = self._by_input(ctx) if want_input else None
        self.weight_gradients(ctx)
        return result

    def vjp(self, ctx: LinearContext, gradient: Array) -> Array:
        self._go_back(ctx, gradient)
        return self._by_input(ctx)

    def _go_back(self, ctx: LinearContext, gradient: Array) -> None:
        """Go back over time from the gradient with respect to the output, (B, T, O) or (B, O)."""
        ctx.went_back = False
        by_output = ctx.buffer("by_output", (*ctx.rows, self.output_size))
        is_ready = ctx.lengths is None and ctx.final_gradient is None and gradient.flags.c_contiguous
        if gradient.ndim == 3 and is_ready:
            by_output = gradient
        elif gradient.ndim == 3:
            by_output[...] = gradient
            ctx.clear(by_output)
        else:
            by_output[...] = 0
            by_output[ctx.ends] += gradient
        state, by_term = (ctx.buffer(name, (*ctx.rows, self.reals)) for name in ("state", "by_term"))
        by_state = self.by_state(ctx, state, by_output)
        if ctx.final_gradient is not None:
            by_state[ctx.ends] += self._as_reals(ctx, ctx.final_gradient[0][0])
        factor = self.factors(ctx)
        by_factor = ctx.buffer("by_factor", factor.shape)
        by_initial = ctx.buffer("by_initial", (ctx.rows[0], self.reals))
        scan = self._scan(ctx, factor, WAYS[ctx.method])
        ctx.backward = f"l0: {scan.choice('backward')}"
        scan.backward(state, self._initial(ctx), by_state, by_factor, by_term, by_initial)
        self.hand_back(ctx, state, by_output, (by_factor, by_term))
        by_initial = by_initial.view(self.state_dtype(ctx.dtype))
        by_states = ctx.buffer("state_gradients_0", (1, *by_initial.shape), by_initial.dtype)
        by_states[0] = by_initial
        ctx.went_back = True
        if ctx.want_states:
            ctx.saved["state_gradients"] = by_states

    def by_state(self, ctx: LinearContext, state: Array, by_output: Array) -> Array:
        """Return the gradient with respect to the states, (B, T, R). The caller may overwrite the result.

        `state` contains the states, (B, T, R), and `by_output` the gradient with respect to the output,
        (B, T, `output_size`). R (`reals`) is the number of real values in one state.
        """
        if not self.cell.has_output:
            return by_output
        by_state = ctx.buffer("by_state", state.shape)
        self._launch(ctx, "by_state", state, by_output, by_state)
        return by_state

    def hand_back(self, ctx: LinearContext, state: Array, by_output: Array, by: tuple[Array, Array]) -> None:
        """Store in `ctx` the arrays that `write_by_input` and `weight_gradients` read.

        `state` contains the states, and `by_output` the gradient with respect to the output. `by` is the pair
        of gradients with respect to the factors and to the terms that `terms` returned.
        """
        none = ctx.buffer("none", (0,))
        outputs = (state, by_output) if self.cell.has_output else (none, none)
        self._launch(ctx, "by_inputs", outputs[0], *by, outputs[1], self._delta(ctx))

    def _delta(self, ctx: LinearContext) -> Array:
        """The gradient with respect to the projected input and the unit parameters, (B, T, (G + Q) H)."""
        columns = (self.cell.gates + len(self.unit_parameters)) * self.hidden_size
        return ctx.buffer("delta", (*ctx.rows, columns))

    def _by_input(self, ctx: LinearContext) -> Array:
        """The gradient with respect to the input."""
        out = ctx.buffer("input_gradient", ctx.input.shape)
        result = out if out.flags.c_contiguous else ctx.buffer("by_input", out.shape)
        self.write_by_input(ctx, result)
        ctx.clear(result)
        if result is not out:
            out[...] = result
        return out

    def write_by_input(self, ctx: LinearContext, out: Array) -> None:
        """Write the gradient with respect to the input, (B, T, F), to `out`."""
        delta = self._delta(ctx)
        self.multiply_back(ctx, delta, ctx.parameters["weight_ih_l0"], out)
        if self.skips:
            out += delta[:, :, self.weighted : self.weighted + self.input_size]

    def weight_gradients(self, ctx: LinearContext) -> None:
        """Write the gradients with respect to all parameters to `ctx.gradients`."""
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

    # ---- analysis ----

    def step_jacobians(self, ctx: LinearContext) -> Iterator[StepJacobians]:
        xp, (batch, steps) = ctx.device.xp, ctx.rows
        factor = xp.broadcast_to(self.factors(ctx), (batch, steps, self.reals)).transpose(1, 2, 0)
        values, identity = factor[:, :, None], xp.ones((1, 1, 1, 1), ctx.dtype)
        if self.paired:
            # The rows of a unit are the previous real and imaginary part: (re, im), (-im, re).
            real, imaginary = factor[:, ::2], factor[:, 1::2]
            values = xp.stack([real, imaginary, -imaginary, real], axis=2)
            identity = xp.asarray([1, 0, 0, 1], ctx.dtype)[None, None, :, None]
        values = xp.array(values, order="C")
        if ctx.lengths is not None:  # the Jacobian of a step after the end is the identity
            after = xp.arange(steps)[:, None] >= ctx.lengths[None, :]
            xp.copyto(values, identity, where=after[:, None, None, :])
        values = values.reshape(steps, -1, batch)
        yield StepJacobians(f"{type(self).__name__} l0", "forward", self.step_pattern, values)


#: Candidates of MinGRU, and the cells.
CANDIDATES = {"linear": "mingru", "positive": "mingru_positive"}


class MinGRU(LinearRecurrent):
    """minGRU (Feng et al. 2024, section 3.1): h' = (1 - z) h + z h̃, where z = σ(W_z x + b_z).

    Parameters
    ----------
    input_size, hidden_size : int
        F input features and H units.
    *arguments
        `bias` and `batch_first` of `LinearRecurrent`.
    candidate : {"linear", "positive"}, default: "linear"
        "linear" is h̃ = W_h x + b_h. "positive" is h̃ = g(W_h x + b_h) with g(x) = x + 1/2 for x ≥ 0 and
        σ(x) for x < 0 (appendix B.3), as in log-space implementations.
    **options
        `outputs` and `forward_method` of `LinearRecurrent`.

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

    arguments = (*LinearRecurrent.arguments, "candidate")

    def __init__(
        self, input_size: int, hidden_size: int, *arguments: Any, candidate: str = "linear", **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, *arguments, **options)
        self.candidate = as_choice("MinGRU", "candidate", candidate, CANDIDATES)

    @property
    def cell(self) -> LinearForm:
        return LINEAR_FORMS[CANDIDATES[self.candidate]]


class MinLSTM(LinearRecurrent):
    """minLSTM (Feng et al. 2024, section 3.2): h' = a h + (1 - a) h̃.

    a = f / (f + i), f = σ(W_f x + b_f), i = σ(W_i x + b_i), h̃ = W_h x + b_h.

    Parameters
    ----------
    input_size, hidden_size : int
        F input features and H units.
    bias, batch_first, outputs, forward_method
        Biases, layout, returned steps and the method over time: see `LinearRecurrent`.

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


class SRU(LinearRecurrent):
    """Simple recurrent unit (Lei et al. 2018), whose gates only read the input.

    c' = f c + (1 - f) W_c x, h = r c' + (1 - r) x, f = σ(W_f x + b_f), r = σ(W_r x + b_r).

    Parameters
    ----------
    input_size, hidden_size : int
        F input features and H units.
    bias, batch_first, outputs, forward_method
        Biases, layout, returned steps and the method over time: see `LinearRecurrent`.

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


class QRNN(LinearRecurrent):
    """Quasi-recurrent layer with fo-pooling (Bradbury et al. 2017, equation 4).

    c' = f c + (1 - f) z, h = o c', z = tanh(W_z x + b_z), f and o = σ(W x + b).

    Parameters
    ----------
    input_size, hidden_size : int
        F input features and H units.
    bias, batch_first, outputs, forward_method
        Biases, layout, returned steps and the method over time: see `LinearRecurrent`.

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


class RGLRU(LinearRecurrent):
    """Real-gated linear recurrent unit (De et al. 2024, section 2.4), with as many units as features.

    h' = a h + sqrt(1 - a²) i x, a = exp(-8 softplus(Λ) r), r = σ(W_a x + b_a), i = σ(W_x x + b_x).

    Parameters
    ----------
    input_size : int
        F, which is both the number of features and the number of units H.
    bias : bool, default: True
        Whether the gates have biases.
    **options
        `batch_first`, `outputs` and `forward_method` of `LinearRecurrent`.

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

    arguments = tuple(name for name in LinearRecurrent.arguments if name != "hidden_size")
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
        value = parameters["a_param"]
        # log(1 + e^value), of numbers that do not overflow
        softplus = xp.log1p(xp.exp(-abs(value))) + (value + abs(value)) / 2
        return [-SHARPNESS * softplus]

    def unit_gradients(self, xp: Any, parameters: Mapping[str, Any], by: list[Any]) -> list[Any]:
        return [-SHARPNESS * by[0] / (1 + xp.exp(-parameters["a_param"]))]
