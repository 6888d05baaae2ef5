"""What RNN, GRU and LSTM share: PyTorch's arguments and parameters, and the passes over time."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from bppsa_cupy.arguments import as_flag, as_integer, as_number, is_one_of
from bppsa_cupy.conversion import of_dtype
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import DeviceError, ShapeError
from bppsa_cupy.layers.base import Layer, Shape, StepJacobians, uniform_fan_in
from bppsa_cupy.layers.recurrent_context import RecurrentContext
from bppsa_cupy.layers.recurrent_jacobians import step_jacobians
from bppsa_cupy.layers.recurrent_states import get_states, set_states
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.timescan import (
    Stack,
    StackSize,
    WalkSize,
    check_forward,
    kept_shapes,
    stack_shapes,
    suffix,
)

#: What a recurrent layer puts out.
OUTPUTS = ("all", "last")
FORWARD_METHODS = ("auto", "serial", "newton", "quasi-newton")


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
                   diagonals of the Jacobians' products alone; "auto": whichever of the first two the cost
                   model takes to be quicker
    heads          parts of h = H / heads units that see each other alone: each gate's W_hh is block-diagonal,
                   and weight_hh_l0 (G H, h) holds of each row what lies in its block. So are Jacobians, and
                   their products, of heads h³. With H heads each unit sees itself alone

    A sample may end early (`lengths` of net.forward): later steps leave its state as it is, put out 0
    and have no gradient. NaN in the input goes through to the output, as in PyTorch. The layer is a
    barrier to the scan over layers, and is crossed by a scan over time.
    """

    context = RecurrentContext
    beside_geometry = ("forward_method",)

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
        heads: int = 1,
    ) -> None:
        name = type(self).__name__
        self.input_size = as_integer(name, "input_size", input_size, 1)
        self.hidden_size = as_integer(name, "hidden_size", hidden_size, 1)
        self.num_layers = as_integer(name, "num_layers", num_layers, 1)
        self.bias = as_flag(name, "bias", bias)
        self.batch_first = as_flag(name, "batch_first", batch_first)
        self.bidirectional = as_flag(name, "bidirectional", bidirectional)
        self.dropout = as_number(name, "dropout", dropout, lambda p: p == 0, "0.0 alone")
        if not is_one_of(outputs, OUTPUTS):
            raise ShapeError(f"{name} got outputs={outputs!r}: it takes {' or '.join(map(repr, OUTPUTS))}")
        if not is_one_of(forward_method, FORWARD_METHODS):
            takes = ", ".join(map(repr, FORWARD_METHODS))
            raise ShapeError(f"{name} got forward_method={forward_method!r}: it takes {takes}")
        self.outputs, self.forward_method = outputs, forward_method
        self.heads = as_integer(name, "heads", heads, 1)
        if self.hidden_size % self.heads:
            raise ShapeError(
                f"{name} got heads={heads} and hidden_size={hidden_size}: heads must divide the hidden units"
            )

    @property
    @abc.abstractmethod
    def cell(self) -> CellForm:
        """The cell that walks over time."""

    @property
    def unit_parameters(self) -> tuple[str, ...]:
        """The names of what the cell learns a unit, beside the weights."""
        return ()

    @property
    def directions(self) -> int:
        """D: 2 where bidirectional, else 1."""
        return 2 if self.bidirectional else 1

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
            **({"heads": self.heads} if self.heads > 1 else {}),
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
        for layer in range(self.num_layers):
            inputs = self.directions * self.hidden_size if layer else self.input_size
            for direction in range(self.directions):
                of = suffix(layer, direction)
                shapes[f"weight_ih{of}"] = (rows, inputs)
                shapes[f"weight_hh{of}"] = (rows, self.hidden_size // self.heads)
                if self.bias:
                    shapes[f"bias_ih{of}"] = shapes[f"bias_hh{of}"] = (rows,)
                shapes |= {f"{name}{of}": (self.hidden_size,) for name in self.unit_parameters}
        return shapes

    def initialize(self, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """PyTorch's way: uniform in ±1/sqrt(H); with heads, W_hh in ±1/sqrt(h)."""
        return {
            name: uniform_fan_in(generator, shape, self.fan_in(name))
            for name, shape in self.parameter_shapes().items()
        }

    def fan_in(self, name: str) -> int:
        """What a parameter's initial distribution, uniform in ±1/sqrt(fan_in), follows from."""
        return self.hidden_size // (self.heads if name.startswith("weight_hh") else 1)

    def is_barrier(self, training: bool) -> bool:
        return True

    def jacobian(self, input_shape: Shape) -> None:
        return None

    # ---- passes ----

    def is_recurrent(self) -> bool:
        return True

    def forward(self, ctx: RecurrentContext, x: Array) -> Array:
        (batch, steps), H = x.shape[:2], self.hidden_size
        stack = self._enter(ctx, x)
        stack.forward()
        ctx.went_back = False
        ctx.saved["states"] = get_states(ctx, "states", stack.final_states, H)
        if self.outputs == "all":
            y = ctx.buffer("output", (batch, steps, self.directions * H))
            stack.put(y)
        else:
            y = ctx.buffer("output", (batch, self.directions * H))
            for number, last in enumerate(stack.final_states[-self.directions :]):
                y[:, number * H : (number + 1) * H] = last[:H].T
        ctx.saved.update(input=x, output=y)
        ctx.saved.pop("state_gradients", None)
        return y

    def resume(self, ctx: RecurrentContext, x: Array, kept: Mapping[str, Array]) -> None:
        """Stand as after a `forward` of x that left `kept` in its context, arrays of `kept_shapes`."""
        self._enter(ctx, x).recall(kept)
        ctx.saved["input"] = x

    def _enter(self, ctx: RecurrentContext, x: Array) -> Stack:
        """The stack, with input, lengths and first states in it."""
        batch, steps = x.shape[:2]
        stack = self._make_stack(ctx, batch, steps)
        stack.ends_early = ctx.lengths is not None
        stack.lengths[...] = ctx.lengths if stack.ends_early else steps
        set_states((d.walk.initial for d in stack.directions), ctx.initial)
        stack.take(x)
        return stack

    def backward(self, ctx: RecurrentContext, gradient: Array, want_input: bool) -> Array | None:
        """Once back through time; then the parameters' gradients, and the input's where wanted."""
        stack = self._go_back(ctx, gradient)
        stack.weight_gradients()
        return self._input_gradient(ctx, stack) if want_input else None

    def backward_by_input(self, ctx: RecurrentContext, gradient: Array, want_input: bool) -> Array | None:
        stack = self._go_back(ctx, gradient)
        return self._input_gradient(ctx, stack) if want_input else None

    def backward_by_weights(self, ctx: RecurrentContext, gradient: Array) -> None:
        assert ctx.stack is not None
        ctx.stack.weight_gradients()

    def parameter_gradients(self, ctx: RecurrentContext, gradient: Array) -> None:
        self._go_back(ctx, gradient).weight_gradients()

    def vjp(self, ctx: RecurrentContext, gradient: Array) -> Array:
        return self._input_gradient(ctx, self._go_back(ctx, gradient))

    def _go_back(self, ctx: RecurrentContext, gradient: Array) -> Stack:
        """The stack, gone back through time from the gradient by the output."""
        assert ctx.stack is not None
        stack, H = ctx.stack, self.hidden_size
        ctx.went_back = False
        set_states((d.boundary for d in stack.directions), ctx.final_gradient)
        if self.outputs == "all":
            stack.take_gradient(gradient)
        else:
            for number, last in enumerate(stack.layers[-1]):
                last.boundary[:H] += gradient[:, number * H : (number + 1) * H].T
        try:
            stack.backward(ctx.method)
        except DeviceError:
            if not ctx.drop_others():
                raise
            stack.backward(ctx.method)
        ctx.make_room()
        ctx.went_back = True
        if ctx.want_states:
            ctx.saved["state_gradients"] = get_states(ctx, "state_gradients", stack.state_gradients, H)
        return stack

    @staticmethod
    def _input_gradient(ctx: RecurrentContext, stack: Stack) -> Array:
        result = ctx.buffer("input_gradient", ctx.saved["input"].shape)
        stack.input_gradient(result)
        return result

    def step_jacobians(self, ctx: RecurrentContext, gradient: Array | None) -> Iterator[StepJacobians]:
        return step_jacobians(ctx, type(self).__name__, gradient)

    # ---- buffers ----

    def walk_size(self, steps: int, batch: int, itemsize: int) -> WalkSize:
        """Sizes of a walk over so many steps."""
        return WalkSize(self.cell, steps, batch, self.hidden_size, itemsize, self.heads)

    def _stack_size(self, batch: int, steps: int, itemsize: int) -> StackSize:
        return StackSize(
            self.walk_size(steps, batch, itemsize), self.input_size, self.num_layers, self.directions,
            self.bias, self.outputs == "all", self.unit_parameters,
        )  # fmt: skip

    def kept_shapes(self, batch: int, steps: int) -> dict[str, Shape]:
        """What the way back reads of a forward pass beside what it was given, by name: arrays of its dtype,
        (T, rows, B), by time, samples innermost."""
        return kept_shapes(self._stack_size(batch, steps, 0))

    def _make_stack(self, ctx: RecurrentContext, batch: int, steps: int) -> Stack:
        """The bound passes for this batch and number of steps, made where none are kept of them."""
        key = batch, steps
        if not ctx.recall(key):
            sizes = self._stack_size(batch, steps, ctx.dtype.itemsize)
            shapes = stack_shapes(sizes, ctx.device)
            if ctx.missing_bytes(shapes):
                ctx.unbind()  # what is kept is bound to buffers that are too small
            try:
                stack = self._bind_stack(ctx, sizes, shapes)
            except DeviceError:
                if not ctx.drop_others():
                    raise
                stack = self._bind_stack(ctx, sizes, shapes)
            ctx.keep(key, stack)
        assert ctx.stack is not None
        return ctx.stack

    def _bind_stack(self, ctx: RecurrentContext, sizes: StackSize, shapes: dict[str, Shape]) -> Stack:
        taken = ctx.missing_bytes(shapes)
        if taken <= ctx.device.free_memory():  # else reserve says so
            check_forward(ctx.device, sizes, self.forward_method, taken)
        buffers = ctx.reserve(shapes)
        buffers["lengths"] = ctx.buffer("lengths", (sizes.walk.batch,), np.int64)
        return ctx.make_stack(ctx.device, sizes, buffers, ctx.parameters, ctx.gradients, self.forward_method)

    # ---- states ----

    def check_states(
        self, given: Any, batch: int, dtype: np.dtype, convert: Callable[[Any], Any], what: str
    ) -> tuple[Array, ...]:
        """States in PyTorch's shape, (num_layers D, B, H), each as `convert` (a device's `asarray`) makes it
        an array: h, or h and c for an LSTM; of another dtype where that one loses nothing.

        Raises ShapeError naming both shapes or dtypes.
        """
        name, count = type(self).__name__, self.cell.states
        components = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        if len(components) != count:
            takes = "one array" if count == 1 else "a pair of arrays (h, c)"
            raise ShapeError(f"{name} got {len(components)} arrays as {what}: it takes {takes}")
        arrays = tuple(map(convert, components))
        shape = (self.num_layers * self.directions, batch, self.hidden_size)
        for array in arrays:
            if tuple(array.shape) != shape:
                raise ShapeError(
                    f"{name} got {what} of {array.dtype} and shape {tuple(array.shape)}: it takes {dtype} of "
                    f"shape {shape}, (num_layers * directions, B, hidden_size)"
                )
        cure = f"convert it, as h.astype({dtype.name!r})"
        return tuple(of_dtype(name, what, array, dtype, cure) for array in arrays)
