"""What RNN, GRU and LSTM share: PyTorch's arguments and parameters, and the passes over time."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.jacobians.cell import CellJacobian
from bppsa_cupy.layers.arguments import as_flag, as_size
from bppsa_cupy.layers.base import Context, Layer, Shape, uniform_fan_in
from bppsa_cupy.timescan import Cell, Stack, StackSizes, check_forward, stack_shapes, suffix

#: What a recurrent layer puts out.
OUTPUTS = ("all", "last")
FORWARD_METHODS = ("auto", "serial", "newton", "quasi-newton")


@dataclass
class RecurrentContext(Context):
    """A recurrent layer's part of a forward pass.

    lengths  (B,) int64, where each sequence ends; None where all are whole
    initial  the state before the first step, in PyTorch's shape: (h,) or (h, c), or None
    final_gradient  the gradient by the final state, likewise
    method   of net.backward that is asked for, "auto" included
    forward_ways, backward_ways  how the layer went over time, and why: a line an inner layer and direction
    """

    lengths: Array | None = None
    initial: tuple[Array, ...] | None = None
    final_gradient: tuple[Array, ...] | None = None
    method: str = "auto"
    forward_ways: tuple[str, ...] = ()
    backward_ways: tuple[str, ...] = ()


class Recurrent(Layer):
    """A recurrent layer over sequences (B, T, F), with PyTorch's arguments, parameters and gate order.

    input_size, hidden_size  F and H, at least 1
    num_layers     inner layers, each on the states of the one before
    bias           whether there are bias_ih and bias_hh
    batch_first    the layout of `net[i](x, h0)`, a layer called on its own; `net.forward` takes and
                   gives (B, T, F) always. PyTorch's default is False, ours True
    dropout        0.0 alone is taken
    bidirectional  a second direction from the last step to the first; D = 2, else 1
    outputs        "all": every step's state of the last inner layer, (B, T, D H); "last": each
                   direction's last one, (B, D H)
    forward_method  "serial": step after step; "newton": all steps at once by Newton's iteration, damped where
                   it strays, and serially where it does not converge; "quasi-newton": likewise, with the
                   diagonals of the Jacobians' products alone; "auto": of the first two what the cost model
                   takes to be quicker

    A sample may end early (`lengths` of net.forward): later steps leave its state as it is, put out 0
    and have no gradient. NaN in the input goes through to the output, as in PyTorch. The layer is a
    barrier to the scan over layers, and is crossed by a scan over time.
    """

    barrier = True
    beside_geometry = ("forward_method",)
    context = RecurrentContext

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        outputs: str = "all",
        forward_method: str = "auto",
    ) -> None:
        name = type(self).__name__
        self.input_size = as_size(name, "input_size", input_size)
        self.hidden_size = as_size(name, "hidden_size", hidden_size)
        self.num_layers = as_size(name, "num_layers", num_layers)
        self.bias = as_flag(name, "bias", bias)
        self.batch_first = as_flag(name, "batch_first", batch_first)
        self.bidirectional = as_flag(name, "bidirectional", bidirectional)
        if not dropout == 0:
            raise ShapeError(f"{name} got dropout={dropout!r}: it takes 0.0 alone")
        self.dropout = 0.0
        if outputs not in OUTPUTS:
            raise ShapeError(f"{name} got outputs={outputs!r}: it takes {' or '.join(map(repr, OUTPUTS))}")
        if forward_method not in FORWARD_METHODS:
            raise ShapeError(
                f"{name} got forward_method={forward_method!r}: it takes "
                f"{', '.join(map(repr, FORWARD_METHODS))}"
            )
        self.outputs, self.forward_method = outputs, forward_method

    @property
    @abc.abstractmethod
    def cell(self) -> Cell:
        """The cell that walks over time."""

    @abc.abstractmethod
    def cell_jacobian(self) -> CellJacobian:
        """The transposed Jacobian of one step's state by the one before."""

    @property
    def directions(self) -> int:
        """D: 2 where bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def places(self) -> list[tuple[int, int]]:
        """(inner layer, direction) in the order of PyTorch's states and parameters."""
        return [(layer, d) for layer in range(self.num_layers) for d in range(self.directions)]

    def config(self) -> dict[str, Any]:
        return {
            "input_size": self.input_size,
            "hidden_size": self.hidden_size,
            "num_layers": self.num_layers,
            "bias": self.bias,
            "batch_first": self.batch_first,
            "dropout": self.dropout,
            "bidirectional": self.bidirectional,
            "outputs": self.outputs,
            "forward_method": self.forward_method,
        }

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) != 2 or input_shape[1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}({self.input_size}, {self.hidden_size}) got input {input_shape}: it "
                f"takes sequences (T, {self.input_size})"
            )
        if input_shape[0] == 0:
            raise ShapeError(f"{type(self).__name__} got input {input_shape}: T must be at least 1")
        features = self.directions * self.hidden_size
        return (features,) if self.outputs == "last" else (input_shape[0], features)

    def parameter_shapes(self) -> dict[str, Shape]:
        rows = self.cell.gates * self.hidden_size
        shapes: dict[str, Shape] = {}
        for layer, direction in self.places:
            of = suffix(layer, direction)
            inputs = self.directions * self.hidden_size if layer else self.input_size
            shapes[f"weight_ih{of}"] = (rows, inputs)
            shapes[f"weight_hh{of}"] = (rows, self.hidden_size)
            if self.bias:
                shapes[f"bias_ih{of}"] = shapes[f"bias_hh{of}"] = (rows,)
        return shapes

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        shapes = self.parameter_shapes()
        return {name: uniform_fan_in(generator, shape, self.hidden_size) for name, shape in shapes.items()}

    def jacobian(self, input_shape: Shape) -> None:
        return None

    # ---- passes ----

    def forward(self, state: RecurrentContext, x: Array) -> Array:
        stack = self._stack(state, x.shape[0], x.shape[1])
        self._set_lengths(state, stack, x.shape[0], x.shape[1])
        self._set_states(stack, "initial", state.initial)
        stack.take(x)
        stack.forward()
        state.forward_ways = tuple(stack.forward_descriptions)
        self._get_states(state, stack, "final", "states")
        batch, features = x.shape[0], self.directions * self.hidden_size
        if self.outputs == "all":
            y = state.buffer("output", (batch, x.shape[1], features))
            stack.put(y)
        else:
            y = state.buffer("output", (batch, features))
            hidden = self._parts(state.saved["states"])[0]
            for d in range(self.directions):
                y[:, d * self.hidden_size : (d + 1) * self.hidden_size] = hidden[d - self.directions]
        state.saved.update(input=x, output=y)
        state.saved.pop("state_gradients", None)
        return y

    def parameter_gradients(self, state: RecurrentContext, gradient: Array) -> None:
        self.backward(state, gradient, want_input=False)

    def vjp(self, state: RecurrentContext, gradient: Array) -> Array:
        self._backward(state, gradient)
        return self._input_gradient(state)

    def backward(self, state: RecurrentContext, gradient: Array, want_input: bool) -> Array | None:
        self._backward(state, gradient)
        state.memo["stack"].weight_gradients()
        return self._input_gradient(state) if want_input else None

    def _input_gradient(self, state: RecurrentContext) -> Array:
        result = state.buffer("input_gradient", state.saved["input"].shape)
        state.memo["stack"].input_gradient(result)
        return result

    def _backward(self, state: RecurrentContext, gradient: Array) -> None:
        stack, H = state.memo["stack"], self.hidden_size
        self._set_states(stack, "boundary", state.final_gradient)
        if self.outputs == "all":
            stack.take_gradient(gradient)
        else:
            for d in range(self.directions):
                boundary = stack.arrays[f"boundary{suffix(self.num_layers - 1, d)}"]
                boundary[:H] += gradient[:, d * H : (d + 1) * H].T
        stack.backward(state.method)
        state.backward_ways = tuple(stack.backward_descriptions)
        self._get_states(state, stack, "entering", "state_gradients")

    def step_jacobians(self, state: RecurrentContext) -> Iterator[tuple[str, str, Pattern, Array]]:
        """Of each inner layer and direction: its name ("RNN l0"), "forward" or "backward", and the pattern
        and values (T, nnz, B), by time, of the transposed Jacobians of the state by the one before."""
        jacobian = self.cell_jacobian()
        for (layer, direction), walk in state.memo["stack"].walks.items():
            values = state.device.empty((walk.steps, jacobian.pattern.nnz, walk.batch), state.dtype)
            jacobian.fill(state.device, walk, values)
            name = f"{type(self).__name__} l{layer}"
            yield name, "backward" if direction else "forward", jacobian.pattern, values

    # ---- buffers ----

    def _stack(self, state: RecurrentContext, batch: int, steps: int) -> Stack:
        """The bound passes for this batch and number of steps, made again where they were others."""
        sizes = StackSizes(
            steps, batch, self.input_size, self.hidden_size, self.num_layers, self.directions, self.bias,
            self.outputs == "all",
        )  # fmt: skip
        stack = state.memo.get("stack")
        if stack is None or stack.sizes != sizes:
            shapes, itemsize = stack_shapes(self.cell, sizes, state.device), state.dtype.itemsize
            taken = state.missing_bytes(shapes)
            if taken <= state.device.free_memory():  # else reserve says so
                check_forward(state.device, self.cell, sizes, itemsize, self.forward_method, taken)
            arrays = state.reserve(shapes)
            arrays["lengths"] = state.buffer("lengths", (batch,), np.int64)
            if not self.bias and self.cell.name == "gru":
                for place in self.places:
                    arrays[f"bias_n{suffix(*place)}"][...] = 0
            stack = Stack(
                state.device, self.cell, sizes, arrays, state.parameters, state.gradients, self.forward_method
            )
            state.memo["stack"] = stack
        return stack

    @staticmethod
    def _set_lengths(state: RecurrentContext, stack: Stack, batch: int, steps: int) -> None:
        stack.arrays["lengths"][...] = steps if state.lengths is None else state.lengths

    def _set_states(self, stack: Stack, name: str, given: Any) -> None:
        """Set every walk's array `name`, (S, B), from PyTorch's (L D, B, H) or a pair of them; 0 for None."""
        H = self.hidden_size
        for place, where in enumerate(self.places):
            array = stack.arrays[f"{name}{suffix(*where)}"]
            if given is None:
                array[...] = 0
                continue
            for part, values in enumerate(given):
                array[part * H : (part + 1) * H] = values[place].T

    def _get_states(self, state: RecurrentContext, stack: Stack, name: str, kept: str) -> None:
        """Keep every walk's array `name`, (S, B), in PyTorch's (L D, B, H) as `saved[kept]`: h or (h, c)."""
        H, places = self.hidden_size, self.places
        parts = []
        for part in range(self.cell.states):
            result = state.buffer(f"{kept}_{part}", (len(places), stack.sizes.batch, H))
            for place, where in enumerate(places):
                result[place] = stack.arrays[f"{name}{suffix(*where)}"][part * H : (part + 1) * H].T
            parts.append(result)
        state.saved[kept] = parts[0] if len(parts) == 1 else tuple(parts)

    # ---- states ----

    @staticmethod
    def _parts(state: Any) -> tuple[Array, ...]:
        return state if isinstance(state, tuple) else (state,)

    @staticmethod
    def final_states(state: RecurrentContext) -> Any:
        """The state after the last step of a pass: h, (num_layers D, B, H), for an LSTM the pair (h, c)."""
        return state.saved["states"]

    def check_states(
        self, given: Any, batch: int, dtype: np.dtype, device: Any, what: str
    ) -> tuple[Array, ...]:
        """States in PyTorch's shape, (num_layers D, B, H), on the device: h, or h and c for an LSTM.

        Raises ShapeError naming both shapes or dtypes.
        """
        name, count = type(self).__name__, self.cell.states
        parts = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        if len(parts) != count:
            takes = "one array" if count == 1 else "a pair of arrays (h, c)"
            raise ShapeError(f"{name} got {len(parts)} arrays as {what}: it takes {takes}")
        arrays = tuple(device.asarray(part) for part in parts)
        shape = (len(self.places), batch, self.hidden_size)
        for array in arrays:
            if tuple(array.shape) != shape or array.dtype != dtype:
                raise ShapeError(
                    f"{name} got {what} of {array.dtype} and shape {tuple(array.shape)}: it takes {dtype} of "
                    f"shape {shape}, (num_layers * directions, B, hidden_size)"
                )
        return arrays
