"""LRU and DiagonalSSM: linear state spaces of complex units, whose factors are the same at every step."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.arguments import as_number
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ArgumentError
from bppsa_cupy.layers.base import Shape
from bppsa_cupy.layers.linear_recurrent import LinearContext, LinearRecurrent

#: Elements that are scaled and added at once on the host.
SCALED_AT_ONCE = 1 << 15
#: Range of the step Δ of a new DiagonalSSM.
LEAST_STEP, MOST_STEP = 1e-3, 1e-1


class Discretised(NamedTuple):
    """The values that the scan reads: λ and the gain of the input, (N,) complex each."""

    factor: Array
    gain: Array


class DiagonalRecurrent(LinearRecurrent):
    """Base class of linear state spaces: x' = λ x + γ B u, y = s Re(C x') + D u.

    Parameters
    ----------
    input_size : int
        F, the number of input and output features.
    hidden_size : int
        N, the number of complex units.
    **options
        batch_first, outputs and forward_method of `LinearRecurrent`.

    Notes
    -----
    λ and γ follow from the layer's own parameters (`discretised`). The factor s (`scale`) is 1, or 2 if each
    unit also stands for its conjugate.

    Parameters: the layer's own, (N,) each, B_re_l0 and B_im_l0 (N, F), C_re_l0 and C_im_l0 (F, N), D_l0 (F,).
    States are complex, (1, B, N).
    """

    arguments = tuple(name for name in LinearRecurrent.arguments if name != "bias")
    cell: Any = None
    paired = True
    scale = 1.0
    own_parameters: tuple[str, ...]

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, False, **options)

    @abc.abstractmethod
    def discretised(self, xp: Any, parameters: Mapping[str, Array]) -> Discretised:
        """Return λ and γ, computed from `parameters` with the array module `xp`.

        `parameters` maps the names in `own_parameters` to arrays (N,).
        """

    @abc.abstractmethod
    def own_gradients(
        self, xp: Any, parameters: Mapping[str, Array], made: Discretised, by: Discretised
    ) -> dict[str, Array]:
        """Return the gradients with respect to the parameters in `own_parameters`, by name.

        `xp` and `parameters` are the arguments of `discretised`, and `made` is its result. `by` contains the
        gradients with respect to λ and γ.

        Complex gradients follow PyTorch: the gradient with respect to the real part, plus i times the
        gradient with respect to the imaginary part.
        """

    @abc.abstractmethod
    def initial_own(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw new values of the parameters in `own_parameters` with `generator`, by name."""

    @property
    def output_size(self) -> int:
        return self.input_size

    def parameter_shapes(self) -> dict[str, Shape]:
        N, F = self.hidden_size, self.input_size
        matrices = {"B_re": (N, F), "B_im": (N, F), "C_re": (F, N), "C_im": (F, N), "D": (F,)}
        shapes: dict[str, Shape] = {**dict.fromkeys(self.own_parameters, (N,)), **matrices}
        return {f"{name}_l0": shape for name, shape in shapes.items()}

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw new parameters with `generator`, as in the paper of the layer.

        B, C and D are normal with variances 1 / (2 F), 1 / N and 1.
        """
        deviations = {"B": (2 * self.input_size) ** -0.5, "C": self.hidden_size**-0.5, "D": 1.0}
        drawn = self.initial_own(generator)
        return {
            name: drawn[name.removesuffix("_l0")]
            if name.removesuffix("_l0") in drawn
            else deviations[name[0]] * generator.standard_normal(shape)
            for name, shape in self.parameter_shapes().items()
        }

    # ---- forward ----

    def _parameters(self, ctx: LinearContext) -> dict[str, Array]:
        """The parameters, by their names without "_l0"."""
        return {name.removesuffix("_l0"): array for name, array in ctx.parameters.items()}

    def _made(self, ctx: LinearContext) -> Discretised:
        """λ and γ."""
        return self.discretised(ctx.device.xp, self._parameters(ctx))

    def _inward(self, ctx: LinearContext, made: Discretised) -> Array:
        """γ B as reals (2 N, I), of each row the real parts before the imaginary ones."""
        parameters, xp, gain = self._parameters(ctx), ctx.device.xp, made.gain[:, None]
        rows = ctx.buffer("inward", (self.hidden_size, 2, self.input_size))
        for place, (part, other) in enumerate((("B_re", "B_im"), ("B_im", "B_re"))):
            xp.multiply(parameters[part], gain.real, out=rows[:, place])
            if gain.dtype.kind == "c":
                rows[:, place] += parameters[other] * (gain.imag if place else -gain.imag)
        return rows.reshape(-1, self.input_size)

    def _outward(self, ctx: LinearContext) -> Array:
        """s C as reals (F, 2 N) that the state's are multiplied by."""
        parameters, xp = self._parameters(ctx), ctx.device.xp
        columns = ctx.buffer("outward", (self.input_size, self.hidden_size, 2))
        xp.multiply(parameters["C_re"], self.scale, out=columns[:, :, 0])
        xp.multiply(parameters["C_im"], -self.scale, out=columns[:, :, 1])
        return columns.reshape(self.input_size, -1)

    def factors(self, ctx: LinearContext) -> Array:
        return self._as_reals(ctx, self._made(ctx).factor).reshape(1, 1, -1)

    def terms(self, ctx: LinearContext) -> tuple[Array, Array]:
        x, term = ctx.input, ctx.buffer("term", (*ctx.rows, self.reals))
        made = self._made(ctx)
        self.multiply(ctx, x, self._inward(ctx, made), None, term)
        return self._as_reals(ctx, made.factor).reshape(1, 1, -1), term

    def put(self, ctx: LinearContext, state: Array, out: Array) -> None:
        x, skip = ctx.input, ctx.parameters["D_l0"]
        result = out if out.flags.c_contiguous else ctx.buffer("put", out.shape)
        self.multiply(ctx, state, self._outward(ctx), None, result)
        if result is not out:
            out[...] = result
        self._add_scaled(ctx, x, skip, out)

    @staticmethod
    def _add_scaled(ctx: LinearContext, rows: Array, scale: Array, out: Array) -> None:
        """out += scale rows; on the host so many rows at a time that they stay in the caches."""
        xp, columns = ctx.device.xp, rows.shape[-1]
        if ctx.device.name != "host" or not out.flags.c_contiguous:
            more = ctx.buffer("skipped", out.shape)
            xp.multiply(rows, scale, out=more)
            out += more
            return
        outputs, inputs = out.reshape(-1, columns), rows.reshape(-1, columns)
        count = max(1, SCALED_AT_ONCE // columns)
        scales, more = (ctx.buffer(name, (count, columns)) for name in ("scales", "scaled"))
        scales[...] = scale
        for first in range(0, len(outputs), count):
            part = outputs[first : first + count]
            more_of_part = more[: len(part)]
            xp.multiply(inputs[first : first + count], scales[: len(part)], out=more_of_part)
            part += more_of_part

    # ---- backward ----

    def by_state(self, ctx: LinearContext, state: Array, by_output: Array) -> Array:
        by_state = ctx.buffer("by_state", state.shape)
        self.multiply_back(ctx, by_output, self._outward(ctx), by_state)
        return by_state

    def hand_back(self, ctx: LinearContext, state: Array, by_output: Array, by: tuple[Array, Array]) -> None:
        ctx.saved.update(by_output=by_output, by_factor=by[0].reshape(-1))

    def write_by_input(self, ctx: LinearContext, out: Array) -> None:
        by_term = ctx.buffer("by_term", (*ctx.rows, self.reals))
        self.multiply_back(ctx, by_term, self._inward(ctx, self._made(ctx)), out)
        self._add_scaled(ctx, ctx.saved["by_output"], ctx.parameters["D_l0"], out)

    def weight_gradients(self, ctx: LinearContext) -> None:
        xp, x, by_output = ctx.device.xp, ctx.input, ctx.saved["by_output"]
        parameters, made = self._parameters(ctx), self._made(ctx)
        state, by_term = (ctx.buffer(name, (*ctx.rows, self.reals)) for name in ("state", "by_term"))
        by_inward = ctx.buffer("by_inward", (self.hidden_size, 2, self.input_size))
        by_outward = ctx.buffer("by_outward", (self.output_size, self.hidden_size, 2))
        self.multiply_sums(ctx, by_term, x, by_inward.reshape(self.reals, -1))
        self.multiply_sums(ctx, by_output, state, by_outward.reshape(self.output_size, -1))
        xp.multiply(by_outward[:, :, 0], self.scale, out=ctx.gradients["C_re_l0"])
        xp.multiply(by_outward[:, :, 1], -self.scale, out=ctx.gradients["C_im_l0"])
        by_factor = ctx.saved["by_factor"].view(self.state_dtype(ctx.dtype))
        # The gradients with respect to B and γ follow from those with respect to γ B.
        gain, parts = made.gain, (by_inward[:, 0], by_inward[:, 1])
        for name, part in zip(("B_re", "B_im"), parts, strict=True):
            xp.multiply(part, gain.real[:, None], out=ctx.gradients[f"{name}_l0"])

        def sums(name: str, part: Array) -> Array:
            return xp.einsum("ni,ni->n", parameters[name], part)

        by_gain = sums("B_re", parts[0]) + sums("B_im", parts[1])
        if gain.dtype.kind == "c":
            ctx.gradients["B_re_l0"] += parts[1] * gain.imag[:, None]
            ctx.gradients["B_im_l0"] -= parts[0] * gain.imag[:, None]
            by_gain = by_gain + 1j * (sums("B_re", parts[1]) - sums("B_im", parts[0]))
        by = Discretised(by_factor, by_gain)
        for name, value in self.own_gradients(xp, parameters, made, by).items():
            ctx.gradients[f"{name}_l0"][...] = value
        ctx.gradients["D_l0"][...] = xp.einsum("btf,btf->f", by_output, x)


class LRU(DiagonalRecurrent):
    """Linear recurrent unit (Orvieto et al. 2023, section 3).

    x' = λ x + exp(γ) B u, y = Re(C x') + D u, λ = exp(-exp(ν) + i exp(θ)).

    Parameters
    ----------
    input_size, hidden_size : int
        F features of input u and output y, and N complex units with the states x.
    r_min, r_max : float, default: 0.0 and 1.0
        λ is initialised uniformly over the area of the ring r_min ≤ |λ| ≤ r_max.
    **options
        batch_first, outputs and forward_method of `LinearRecurrent`.

    Notes
    -----
    Parameters: nu_log_l0 (ν), theta_log_l0 (θ) and gamma_log_l0 (γ), (N,) each, B_re_l0 and B_im_l0 (N, F),
    C_re_l0 and C_im_l0 (F, N), and D_l0 (F,). B is B_re + i B_im, C is C_re + i C_im. γ is initialised
    to log sqrt(1 - |λ|²). The state is complex.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> layer = bp.LRU(3, 5)
    >>> layer.output_shape((7, 3)), layer.parameter_shapes()["B_re_l0"]
    ((7, 3), (5, 3))
    """

    arguments = (*DiagonalRecurrent.arguments, "r_min", "r_max")
    own_parameters = ("nu_log", "theta_log", "gamma_log")

    def __init__(
        self, input_size: int, hidden_size: int, *, r_min: float = 0.0, r_max: float = 1.0, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        self.r_min = as_number("LRU", "r_min", r_min, lambda r: 0 <= r < 1, "a radius in [0, 1)")
        self.r_max = as_number("LRU", "r_max", r_max, lambda r: 0 < r <= 1, "a radius in (0, 1]")
        if self.r_max <= self.r_min:
            raise ArgumentError(f"LRU got r_min={r_min} and r_max={r_max}: pass r_min < r_max")

    def initial_own(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        radius, phase = generator.uniform(size=(2, self.hidden_size))
        squares = self.r_min**2 + (self.r_max**2 - self.r_min**2) * (1 - radius)  # (0, 1] in place of [0, 1)
        squares = np.minimum(squares, 1 - 1e-6)
        return {
            "nu_log": np.log(-0.5 * np.log(squares)),
            "theta_log": np.log(2 * math.pi * (1 - phase)),
            "gamma_log": 0.5 * np.log1p(-squares),
        }

    def discretised(self, xp: Any, parameters: Mapping[str, Array]) -> Discretised:
        factor = xp.exp(-xp.exp(parameters["nu_log"]) + 1j * xp.exp(parameters["theta_log"]))
        return Discretised(factor, xp.exp(parameters["gamma_log"]))

    def own_gradients(
        self, xp: Any, parameters: Mapping[str, Array], made: Discretised, by: Discretised
    ) -> dict[str, Array]:
        turned = xp.conj(by.factor) * made.factor
        return {
            "nu_log": -(turned.real * xp.exp(parameters["nu_log"])),
            "theta_log": -(turned.imag * xp.exp(parameters["theta_log"])),
            "gamma_log": by.gain.real * made.gain,
        }


class DiagonalSSM(DiagonalRecurrent):
    """Diagonal state space model of S5 (Smith et al. 2023, section 3).

    x' = λ x + ((λ - 1) / Λ) B u, y = 2 Re(C x') + D u, λ = exp(Λ Δ): zero-order hold, step size Δ per unit.

    Parameters
    ----------
    input_size, hidden_size : int
        F features of input u and output y, and N complex units, each for a conjugate pair of states x.
    **options
        batch_first, outputs and forward_method of `LinearRecurrent`.

    Notes
    -----
    Parameters: Lambda_re_l0, Lambda_im_l0 and log_step_l0 (log Δ), (N,) each, B_re_l0 and B_im_l0 (N, F),
    C_re_l0 and C_im_l0 (F, N), and D_l0 (F,). Λ, B and C are complex, with real parts "re" and imaginary
    parts "im". Λ is initialised to the N eigenvalues of HiPPO-N above the real axis (appendix B, equation 9),
    and Δ log-uniformly between 0.001 and 0.1. The state is complex.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.DiagonalSSM(3, 5).parameter_shapes()["log_step_l0"]
    (5,)
    """

    own_parameters = ("Lambda_re", "Lambda_im", "log_step")
    scale = 2.0

    def initial_own(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        # HiPPO-N of twice as many states: -1/2 on the diagonal, and a skew part with eigenvalues ± i ω.
        size = 2 * self.hidden_size
        root = np.sqrt(np.arange(size) + 0.5)
        skew = np.tril(np.outer(root, root), -1)
        turns = np.linalg.eigvalsh(1j * (skew - skew.T))[self.hidden_size :]
        steps = generator.uniform(math.log(LEAST_STEP), math.log(MOST_STEP), self.hidden_size)
        return {"Lambda_re": np.full(self.hidden_size, -0.5), "Lambda_im": turns, "log_step": steps}

    def discretised(self, xp: Any, parameters: Mapping[str, Array]) -> Discretised:
        continuous = parameters["Lambda_re"] + 1j * parameters["Lambda_im"]
        turned = continuous * xp.exp(parameters["log_step"])
        # e^z - 1 of reals that do not cancel.
        sine, grown = xp.sin(turned.imag / 2), xp.exp(turned.real)
        less = xp.expm1(turned.real) - 2 * grown * sine * sine + 1j * grown * xp.sin(turned.imag)
        return Discretised(xp.exp(turned), less / continuous)

    def own_gradients(
        self, xp: Any, parameters: Mapping[str, Array], made: Discretised, by: Discretised
    ) -> dict[str, Array]:
        continuous = parameters["Lambda_re"] + 1j * parameters["Lambda_im"]
        step = xp.exp(parameters["log_step"])
        by_turned = xp.conj(made.factor) * by.factor + xp.conj(made.factor / continuous) * by.gain
        by_continuous = step * by_turned - xp.conj(made.gain / continuous) * by.gain
        return {
            "Lambda_re": by_continuous.real,
            "Lambda_im": by_continuous.imag,
            "log_step": (xp.conj(by_turned) * continuous).real * step,
        }
