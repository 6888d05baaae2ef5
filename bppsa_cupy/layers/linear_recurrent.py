"""Recurrent layers whose state goes on by numbers alone, c_t = a_t c_{t-1} + b_t: one exact scan each way."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array
from bppsa_cupy.layers.base import StepJacobians
from bppsa_cupy.layers.recurrent import Recurrent, RecurrentContext
from bppsa_cupy.timescan import products
from bppsa_cupy.timescan.chunked import WAYS
from bppsa_cupy.timescan.linear_scan import LinearScan


class Library(NamedTuple):
    """The PyTorch or JAX functions that a layer's formulas use.

    Attributes
    ----------
    module : module
        A module with exp, sin, cos, expm1 and where.
    scan : callable
        (a, b, h0, reverse, lengths) -> h, the library's `linear_scan`.
    zeros : callable
        (array, shape) -> array of the same dtype and device.
    steps : callable
        (array, T) -> 0 to T - 1 on the array's device.
    project : callable
        (x, weight, bias or None, H) -> x weightᵀ + bias, in arrays of H columns.
    functions : object
        Functions of cells as attributes, by the names that twins use.
    """

    module: Any
    scan: Callable[..., Any]
    zeros: Callable[..., Any]
    steps: Callable[..., Any]
    project: Callable[..., Any]
    functions: Any


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

    def last(self, rows: Array) -> Array:
        """Return the row of `rows` (B, T, columns) at the last step of each sample, as (B, columns)."""
        samples, step, here = self._ends(len(rows))
        ends = rows[samples, step]
        if here is None:
            return ends
        assert self.over_time is not None
        return self.over_time.sum(self.device.xp.where(here[:, None], ends, ends.dtype.type(0)))

    def add_last(self, rows: Array, more: Array) -> None:
        """Add `more` (B, columns) to the row of `rows` (B, T, columns) at the last step of each sample."""
        samples, step, here = self._ends(len(rows))
        if here is not None:
            more = self.device.xp.where(here[:, None], more, more.dtype.type(0))
        rows[samples, step] += more

    def _ends(self, batch: int) -> tuple[Any, Any, Array | None]:
        """The samples, their last steps of this pass, and whether these are here (None: they are)."""
        xp, over = self.device.xp, self.over_time
        if self.lengths is None:
            here = None if over is None else xp.full(batch, over.place == over.ranges - 1)
            return slice(None), -1, here
        if over is None:
            return xp.arange(batch), self.lengths - 1, None
        # Lengths are those of this range; a sample ends in the last range that has steps of it.
        every = xp.empty((over.ranges, batch), np.int64)
        over.gather(xp.ascontiguousarray(self.lengths[None]), every)
        later = every[over.place + 1 :].sum(axis=0)
        return xp.arange(batch), (self.lengths - 1).clip(0, None), (self.lengths > 0) & (later == 0)


def _by_row(rows: Array) -> Array:
    """(B, T, columns) as so many steps of one sample, (B T, columns, 1)."""
    return rows.reshape(-1, rows.shape[2], 1)


class LinearRecurrent(Recurrent):
    """Base class of linear recurrent layers: each unit computes c' = a c + b.

    The factors a and terms b depend only on the input. The forward and backward passes over time are exact
    scans, computed serially or in parallel chunks of time steps. The Jacobian of a step is diagonal. A layer
    has one direction. Stack several layers in a network.

    Parameters
    ----------
    input_size, hidden_size, bias, batch_first, outputs
        See `Recurrent`. F is the number of input features and H the number of units.
    forward_method : {"auto", "serial", "chunked"}, default: "auto"
        "chunked" computes chunks of time steps in parallel. "auto" selects one of the other two.

    Notes
    -----
    A subclass defines `terms`, which computes the factors and terms, and `put`, which computes the output.
    For the backward pass it defines `by_state`, `hand_back`, `write_by_input` and `weight_gradients`. Units
    are complex if the class attribute `paired` is True.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> issubclass(bp.MinGRU, bp.LinearRecurrent)
    True
    >>> bp.MinGRU(3, 5).step_pattern.nnz
    5
    """

    context = LinearContext
    backward_reads = ("input", "states")
    forward_methods = ("auto", "serial", "chunked")
    paired = False

    # ---- what a subclass says ----

    @abc.abstractmethod
    def terms(self, ctx: LinearContext) -> tuple[Array, Array]:
        """Return the factors a (B or 1, T or 1, R) and terms b (B, T, R) for the input in `ctx`.

        R (`reals`) is the number of real values in one state.
        """

    @abc.abstractmethod
    def put(self, ctx: LinearContext, state: Array, out: Array) -> None:
        """Write the output to `out`, (B, T, `output_size`), computed from the states `state`, (B, T, R)."""

    @abc.abstractmethod
    def by_state(self, ctx: LinearContext, state: Array, by_output: Array) -> Array:
        """Return the gradient with respect to the states, (B, T, R). The caller may overwrite the result.

        `state` contains the states, (B, T, R), and `by_output` the gradient with respect to the output,
        (B, T, `output_size`). R (`reals`) is the number of real values in one state.
        """

    @abc.abstractmethod
    def hand_back(self, ctx: LinearContext, state: Array, by_output: Array, by: tuple[Array, Array]) -> None:
        """Store in `ctx` the arrays that `write_by_input` and `weight_gradients` read.

        `state` contains the states, and `by_output` the gradient with respect to the output. `by` is the pair
        of gradients with respect to the factors and to the terms that `terms` returned.
        """

    @abc.abstractmethod
    def write_by_input(self, ctx: LinearContext, out: Array) -> None:
        """Write the gradient with respect to the input, (B, T, F), to `out`."""

    @abc.abstractmethod
    def weight_gradients(self, ctx: LinearContext) -> None:
        """Write the gradients with respect to all parameters to `ctx.gradients`."""

    # ---- sizes ----

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
        scan, initial = self._scan(ctx, factor, self.forward_method), self._initial(ctx)
        if ctx.over_time is not None:
            received = ctx.buffer("came", initial.shape)
            received[...] = self._carried(ctx, scan, term, initial, False)
            initial = received
        ctx.forward = self._describe(ctx, scan.choice("forward"))
        scan.forward(term, initial, state)
        after = ctx.buffer("states_0", (1, len(x), self.hidden_size), self.state_dtype(ctx.dtype))
        after[0] = ctx.last(state).view(after.dtype)
        if self.outputs == "last":
            y, put = ctx.buffer("output", (len(x), self.output_size)), ctx.buffer("put", shape)
            self.put(ctx, state, put)
            y[...] = ctx.last(put)
        else:
            y = ctx.buffer("output", shape)
            self.put(ctx, state, y)
            ctx.clear(y)
        ctx.saved.update(input=x, output=y, states=after)
        ctx.saved.pop("state_gradients", None)
        return y

    @staticmethod
    def _describe(ctx: LinearContext, choice: Any) -> str:
        over = ctx.over_time
        return f"l0: {choice}" + ("" if over is None else f", on {over.ranges} ranks at once")

    def _carried(
        self, ctx: LinearContext, scan: LinearScan, terms: Array, first: Array, transposed: bool
    ) -> Array:
        """The state, (B, R), before the first step held here, from the one before the first step of all in
        the scan's direction."""
        over, shape = ctx.over_time, first.shape
        assert over is not None
        part = [ctx.buffer(f"own_{name}", (1, *shape)) for name in ("product", "end")]
        every = [ctx.buffer(f"every_{name}", (over.ranges, *shape)) for name in ("product", "end", "start")]
        start = scan.over_ranges(terms, first, part, every, over.gather, transposed=transposed)
        return ctx.device.xp.ascontiguousarray(start[over.place])

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

    def parameter_gradients(self, ctx: LinearContext, gradient: Array) -> None:
        self.backward(ctx, gradient, False)

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
            ctx.add_last(by_output, gradient)
        state, by_term = (ctx.buffer(name, (*ctx.rows, self.reals)) for name in ("state", "by_term"))
        by_state = self.by_state(ctx, state, by_output)
        if ctx.final_gradient is not None:
            ctx.add_last(by_state, self._as_reals(ctx, ctx.final_gradient[0][0]))
        factor = self.factors(ctx)
        by_factor = ctx.buffer("by_factor", factor.shape)
        by_initial = ctx.buffer("by_initial", (ctx.rows[0], self.reals))
        scan, initial = self._scan(ctx, factor, WAYS[ctx.method]), self._initial(ctx)
        over, incoming = ctx.over_time, None
        if over is not None:
            initial = ctx.buffer("came", initial.shape)
            zero = ctx.buffer("zero", initial.shape)
            zero[...] = 0
            incoming = self._carried(ctx, scan, by_state, zero, True)
        ctx.backward = self._describe(ctx, scan.choice("backward"))
        scan.backward(state, initial, by_state, by_factor, by_term, by_initial, incoming)
        if over is not None:
            by_initial[...] = over.sum(by_initial if over.place == 0 else by_initial * 0)
        self.hand_back(ctx, state, by_output, (by_factor, by_term))
        by_initial = by_initial.view(self.state_dtype(ctx.dtype))
        by_states = ctx.buffer("state_gradients_0", (1, *by_initial.shape), by_initial.dtype)
        by_states[0] = by_initial
        ctx.went_back = True
        if ctx.want_states:
            ctx.saved["state_gradients"] = by_states

    def _by_input(self, ctx: LinearContext) -> Array:
        """The gradient with respect to the input."""
        out = ctx.buffer("input_gradient", ctx.input.shape)
        result = out if out.flags.c_contiguous else ctx.buffer("by_input", out.shape)
        self.write_by_input(ctx, result)
        ctx.clear(result)
        if result is not out:
            out[...] = result
        return out

    # ---- the same in the differentiable operations of PyTorch or JAX, around its linear scan ----

    def cell_in(self, library: Library) -> Any:
        """Return what `scan_in` gets as its argument `cell`: functions for PyTorch or JAX arrays, or None.

        `library` is a `Library`, the named tuple of the PyTorch or JAX functions. The default returns None,
        for layers whose `scan_in` needs no such functions.
        """
        return None

    @abc.abstractmethod
    def scan_in(
        self, library: Library, cell: Any, parameters: Any, x: Any, lengths: Any, first: Any
    ) -> tuple[Any, Any]:
        """Return outputs (B, T, `output_size`) and states (B, T, H), computed with PyTorch or JAX.

        `library` is the `Library` of PyTorch or JAX functions, and `cell` the result of `cell_in` for it.
        `parameters` maps parameter names, without the suffix "_l0", to arrays. `x` is the input, (B, T, F).
        `lengths` contains the number of valid steps per sample, (B,), or is None. `first` is the initial
        state, (B, H), or None for zeros.
        """

    def forward_in(
        self, library: Library, cell: Any, parameters: Mapping[str, Any], x: Any, lengths: Any, state: Any
    ) -> tuple[Any, Any]:
        """Return the output and the final states (1, B, H), computed differentiably in PyTorch or JAX.

        Parameters
        ----------
        library : Library
            The PyTorch or JAX functions.
        cell : object
            The object that `cell_in` returned for `library`.
        parameters : mapping of str to array
            The layer's parameters by parameter name.
        x : array, (B, T, F)
            The input.
        lengths : array of int, (B,), or None
            Number of valid steps of each sample.
        state : array, (1, B, H), or None
            The initial state, complex for complex units. None means zeros.
        """
        live = None
        if lengths is not None:
            live = library.steps(x, x.shape[1])[None, :, None] < lengths[:, None, None]

        def cleared(rows: Any) -> Any:
            if live is None:
                return rows
            return library.module.where(live, rows, library.zeros(rows, rows.shape))

        def last(rows: Any) -> Any:
            return rows[:, -1] if lengths is None else rows[library.steps(rows, len(rows)), lengths - 1]

        named = {key.removesuffix("_l0"): array for key, array in parameters.items()}
        first = None if state is None else state[0]
        y, h = self.scan_in(library, cell, named, cleared(x), lengths, first)
        y = cleared(y)
        return (last(y) if self.outputs == "last" else y), last(h)[None]

    # ---- analysis ----

    @abc.abstractmethod
    def factors(self, ctx: LinearContext) -> Array:
        """Return the factors a of the forward pass of `ctx`, (B or 1, T or 1, R), where R is `reals`."""

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
