"""Recurrent layers whose gates read the former state through W_hh: parameters, and the passes over time."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from bppsa_cupy.arguments import as_flag, as_integer, as_number
from bppsa_cupy.cells import Cell
from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Launch, rules
from bppsa_cupy.errors import ArgumentError
from bppsa_cupy.jacobians.cell import CellJacobian
from bppsa_cupy.layers.base import Shape, StepJacobians
from bppsa_cupy.layers.recurrent import Recurrent, RecurrentContext
from bppsa_cupy.raw_kernels.cells import FORMS
from bppsa_cupy.raw_kernels.frames.form import CellForm
from bppsa_cupy.timescan import Stack, StackSize, WalkSize, choose_forward, kept_shapes, suffix
from bppsa_cupy.timescan.lengths import CLOSED

#: Batches and numbers of steps whose bound passes a context keeps, at most.
MOST_STACKS = 4


@dataclass
class MatrixContext(RecurrentContext):
    """The part of a pass of a layer with W_hh.

    Attributes
    ----------
    make_stack : callable
        Creates the passes over time from the arguments of Stack.
    stack : Stack or None
        The passes, bound to buffers for the present batch size and number of steps.
    stacks : dict
        Stacks of the latest sizes on the same buffers, so that an epoch's last batch binds nothing again.
        The key says also whether there are resets.
    version : int
        Version of the device's choices that the stacks follow.
    full_sizes : tuple or None
        Batch size and steps if all sequences have full length.
    """

    make_stack: Callable[..., Stack] = field(default=Stack, repr=False)
    stack: Stack | None = field(default=None, repr=False)
    stacks: dict[tuple[int, int, bool], Stack] = field(default_factory=dict, repr=False)
    full_sizes: tuple[int, int] | None = field(default=None, repr=False)
    version: int = field(default=0, repr=False)

    @property
    def forward_ways(self) -> tuple[str, ...]:
        return self.stack.forward_ways if self.stack is not None else ()

    @property
    def backward_ways(self) -> tuple[str, ...]:
        return self.stack.backward_ways if self.stack is not None and self.went_back else ()

    def rebind(self, parameters: dict[str, Array]) -> None:
        """Use other parameters: the next pass binds its launches again, on the same buffers."""
        super().rebind(parameters)
        self.unbind()

    def unbind(self) -> None:
        """Drop the passes over time and their memory; the buffers stay."""
        self.stack = None
        self.stacks.clear()


def set_states(arrays: Iterable[Array], states: tuple[Array, ...] | None) -> None:
    """Set arrays (S, B), one per direction, from PyTorch's layout; 0 for None."""
    for number, array in enumerate(arrays):
        if states is None:
            array[...] = 0
            continue
        H = states[0].shape[2]
        for component, values in enumerate(states):
            array[component * H : (component + 1) * H].T[...] = values[number]


class MatrixRecurrent(Recurrent):
    """Base class of recurrent layers whose gates read the previous state through a matrix W_hh.

    Parameters
    ----------
    input_size, hidden_size : int
        F input features and H units.
    num_layers : int, default: 1
        Number of stacked layers, called inner layers. Each inner layer reads the outputs of the previous one.
    bias, batch_first : bool, default: True
        Whether there are biases, and whether `bp.functional.forward` gets (B, T, F) instead of (T, B, F).
    dropout : float, default: 0.0
        Only 0.0 is supported.
    bidirectional : bool, default: False
        Whether a second direction runs from the last step to the first. The number of directions D is then 2,
        else 1.
    **options
        `outputs` and `forward_method` of `Recurrent`. The methods are "serial", "newton" and "auto".

    Raises
    ------
    ShapeError
        If `input_size` or `hidden_size` is not a positive integer.
    ArgumentError
        If another argument is invalid.

    Notes
    -----
    Parameter names and gate order are those of PyTorch. For example, weight_ih_l1 belongs to the second inner
    layer, and weight_ih_l0_reverse to the second direction. From the second inner layer on, F is D H.

    "newton" computes all time steps together by a damped Newton iteration. If the iteration does not
    converge, the pass is computed serially. "auto" means "serial" on the host.

    Examples
    --------
    >>> import bppsa_cupy as bp
    >>> bp.RNN(3, 4, bias=False).parameter_shapes()
    {'weight_ih_l0': (4, 3), 'weight_hh_l0': (4, 4)}
    """

    arguments: ClassVar[tuple[str, ...]] = (
        "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional",
        "outputs", "forward_method",
    )  # fmt: skip
    context = MatrixContext
    #: Whether the input is multiplied by W_ih; else it is the projected input.
    projects = True
    #: The place of the state that is the output.
    output = 0
    forward_methods: tuple[str, ...] = ("auto", "serial", "newton")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, batch_first, **options)
        name = type(self).__name__
        self.num_layers = as_integer(name, "num_layers", num_layers, 1, error=ArgumentError)
        self.bidirectional = as_flag(name, "bidirectional", bidirectional)
        self.dropout = as_number(name, "dropout", dropout, lambda p: p == 0, "0.0")

    @property
    @abc.abstractmethod
    def cell(self) -> CellForm:
        """The cell of the layer, in the symbolic form from which kernels are generated."""

    @property
    def unit_parameters(self) -> tuple[str, ...]:
        """Names of the learned parameters with one value per unit, besides weights and biases."""
        return ()

    @property
    def state_count(self) -> int:
        return self.cell.states

    @property
    def step_pattern(self) -> Pattern:
        return CellJacobian(self.cell, self.hidden_size).pattern

    def parameter_shapes(self) -> dict[str, Shape]:
        rows, recurrent = self.cell.gates * self.hidden_size, self.cell.sums * self.hidden_size
        shapes: dict[str, Shape] = {}
        for layer in range(self.num_layers):
            inputs = self.directions * self.hidden_size if layer else self.input_size
            for direction in range(self.directions):
                end = suffix(layer, direction)
                shapes[f"weight_ih{end}"] = (rows, inputs)
                shapes[f"weight_hh{end}"] = (recurrent, self.hidden_size)
                if self.bias:
                    shapes |= {f"bias_ih{end}": (rows,), f"bias_hh{end}": (recurrent,)}
                shapes |= {f"{name}{end}": (self.hidden_size,) for name in self.unit_parameters}
        return shapes

    # ---- passes ----

    def forward(self, ctx: MatrixContext, x: Array) -> Array:
        batch, steps = x.shape[:2]
        is_whole = steps == 1 or ctx.keeps or ctx.resets is not None
        # Without a backward pass parts of `length` steps use the same buffers, except where one direction
        # begins with the last step, or where all steps go at once.
        length = steps
        if not is_whole:
            size = self._stack_size(batch, steps, ctx.dtype.itemsize)
            if not self.bidirectional and ctx.make_stack is Stack:
                on_host = ctx.device.shared_bytes is None
                length = min(steps, rules.steps_at_once(on_host, size.step_bytes, batch, steps))
            if length < steps and choose_forward(ctx.device, size.walk, self.forward_method)[0]:
                length = steps
            length = -(-steps // -(-steps // length))
        width = self.directions * self.hidden_size
        y = ctx.buffer("output", (batch, steps, width) if self.outputs == "all" else (batch, width))
        states = self._state_buffers(ctx, "states", batch)
        if length < steps:
            stack = self._forward_in_parts(ctx, x, y, length)
            self._put_last(stack, y, states)
        else:
            stack = self._enter(ctx, x)

            def go_forward() -> None:
                self._set_initial(ctx, stack)
                stack.forward()
                if self.outputs == "all":
                    _put(ctx, stack.put, y)
                self._put_last(stack, y, states)

            self._repeat(stack, "forward", (y, *states, *(ctx.initial or ())), go_forward)
        ctx.went_back = False
        ctx.saved.update(input=x, output=y, states=states if len(states) > 1 else states[0])
        ctx.saved.pop("state_gradients", None)
        return y

    def _forward_in_parts(self, ctx: MatrixContext, x: Array, y: Array, length: int) -> Stack:
        """Go forward over so many steps at a time, each part from the state that the one before ended with,
        and write the output where it is of every step."""
        for first in range(0, x.shape[1], length):
            before = ctx.stack
            part = x[:, first : first + length]
            if part.strides[0] >= part.strides[1]:  # not a view of (T, B, F)
                part = ctx.device.xp.ascontiguousarray(part)
            stack = self._enter(ctx, part, first)
            if first:
                assert before is not None
                for initial, final in zip(stack.initial_states, before.final_states, strict=True):
                    initial[...] = final
            else:
                set_states(stack.initial_states, ctx.initial)
            stack.forward()
            if self.outputs == "all":
                out = y[:, first : first + length]
                if out.flags.c_contiguous or out.strides[0] < out.strides[1]:
                    stack.put(out)
                else:
                    stack.put(buffered := ctx.buffer("output_part", out.shape))
                    out[...] = buffered
        return stack

    def _put_last(self, stack: Stack, y: Array, states: tuple[Array, ...]) -> None:
        """Write the final states, and the output where it is that of the last step."""
        H = self.hidden_size
        self._get_states(states, stack.final_states)
        if self.outputs != "all":
            for number, last in enumerate(stack.final_states[-self.directions :]):
                y[:, number * H : (number + 1) * H] = last[:H].T

    def _state_buffers(self, ctx: MatrixContext, name: str, batch: int) -> tuple[Array, ...]:
        """Buffers of states in PyTorch's layout: h, of an LSTM h and c."""
        buffers: tuple[Array, ...] = ()
        for place in range(self.cell.states):
            shape = self.num_layers * self.directions, batch, self.hidden_size
            buffers = *buffers, ctx.buffer(f"{name}_{place}", shape)
        return buffers

    def _get_states(self, buffers: tuple[Array, ...], arrays: list[Array]) -> None:
        """Fill such buffers from arrays (S, B), one per direction."""
        H = self.hidden_size
        for component, buffer in enumerate(buffers):
            for number, array in enumerate(arrays):
                buffer[number] = array[component * H : (component + 1) * H].T

    @staticmethod
    def _repeat(stack: Stack, name: str, arrays: tuple[Array, ...], launch: Launch) -> None:
        """Make work on the stack and these arrays, which a device may keep as a graph."""
        if stack.graphs is None:
            launch()
        else:
            stack.device.repeat(stack.graphs, (name, stack.ends_early), arrays, launch)

    def resume(self, ctx: MatrixContext, x: Array, stored: Mapping[str, Array]) -> None:
        """Restore `ctx` after ``forward(ctx, x)`` from `stored`, the arrays that `kept_shapes` lists."""
        stack = self._enter(ctx, x)
        self._set_initial(ctx, stack)
        stack.recall({name: array[: stack.sizes.walk.steps] for name, array in stored.items()})
        ctx.saved["input"] = x

    def _enter(self, ctx: MatrixContext, x: Array, first: int = 0) -> Stack:
        """The stack, with input, lengths and parameters in it; of a part of the steps, of which the first
        is number `first`."""
        (batch, steps), lengths, resets = x.shape[:2], ctx.lengths, ctx.resets
        if resets is not None:
            if ctx.make_stack is not Stack:
                raise ArgumentError("ranks that split time steps do not support resets: use one rank")
            steps, lengths = resets.steps, resets.lengths
        # The passes bound for this batch and number of steps; made where none are kept.
        has_resets = resets is not None
        key = batch, steps, has_resets
        if ctx.version != ctx.device.choices.version:
            ctx.unbind()
            ctx.version = ctx.device.choices.version
        former, ctx.stack = ctx.stack, ctx.stacks.pop(key, None)
        if ctx.stack is None:
            if all(batch * steps > other[0] * other[1] for other in ctx.stacks):
                ctx.unbind()  # whose memory goes before larger buffers are made
            sizes = self._stack_size(batch, steps, ctx.dtype.itemsize, has_resets)
            closing = None
            if has_resets:
                gates = np.repeat(resetting_form(self)[1], self.hidden_size)
                closing = ctx.device.asarray(gates.astype(ctx.dtype))
            arrays = ctx.buffer, ctx.parameters, ctx.gradients
            ctx.stack = ctx.make_stack(ctx.device, sizes, *arrays, self.forward_method, closing)
        stack = ctx.stack
        if stack is not former:
            ctx.full_sizes = None  # a stack of other sizes may have other lengths
        ctx.stacks[key] = stack
        if len(ctx.stacks) > MOST_STACKS:
            del ctx.stacks[next(iter(ctx.stacks))]
        stack.ends_early = lengths is not None
        full_sizes = (batch, steps) if lengths is None else None
        if full_sizes is None or ctx.full_sizes != full_sizes:
            stack.lengths[...] = steps if lengths is None else (lengths - first).clip(0, steps)
        ctx.full_sizes = full_sizes
        if resets is not None:
            stack.extra = resets.extra
        stack.take_input(_spread(ctx, x))
        return stack

    def _set_initial(self, ctx: MatrixContext, stack: Stack) -> None:
        set_states(stack.initial_states, ctx.initial)
        self._cut_first(ctx, stack.initial_states)

    def _cut_first(self, ctx: MatrixContext, arrays: list[Array]) -> None:
        """Set states of samples whose first step has a reset to 0: arrays (S, B), one per direction."""
        if ctx.resets is not None:
            for array in arrays[:: self.directions]:
                array[:, ctx.resets.first] = 0

    def backward(self, ctx: MatrixContext, gradient: Array, want_input: bool) -> Array | None:
        """Run the backward pass over time, and write the gradients with respect to all parameters.

        `gradient` is the gradient with respect to the output. The gradient with respect to the input is
        returned if `want_input` is True, else None.
        """
        stack = self._go_back(ctx, gradient)
        self._repeat(stack, "by weights", (), stack.weight_gradients)
        return self._input_gradient(ctx, stack) if want_input else None

    def vjp(self, ctx: MatrixContext, gradient: Array) -> Array:
        return self._input_gradient(ctx, self._go_back(ctx, gradient))

    def _go_back(self, ctx: MatrixContext, gradient: Array) -> Stack:
        """The stack, gone back through time from the gradient with respect to the output."""
        assert ctx.stack is not None
        stack, H = ctx.stack, self.hidden_size
        states: tuple[Array, ...] = ()
        if ctx.want_states:
            states = self._state_buffers(ctx, "state_gradients", len(gradient))
        ctx.went_back = False

        def go_back() -> None:
            set_states(stack.boundaries, ctx.final_gradient)
            if self.outputs == "all":
                stack.take_gradient(_spread(ctx, gradient))
            else:
                for number, last in enumerate(stack.boundaries[-self.directions :]):
                    by_output = last[:H].T
                    by_output += gradient[:, number * H : (number + 1) * H]
            stack.backward(ctx.method)
            self._cut_first(ctx, stack.state_gradients)
            self._get_states(states, stack.state_gradients)

        arrays = (gradient, *states, *(ctx.final_gradient or ()))
        self._repeat(stack, f"backward {ctx.method}", arrays, go_back)
        ctx.went_back = True
        if states:
            ctx.saved["state_gradients"] = states if len(states) > 1 else states[0]
        return stack

    def _input_gradient(self, ctx: MatrixContext, stack: Stack) -> Array:
        result = ctx.buffer("input_gradient", ctx.saved["input"].shape)
        self._repeat(stack, "by input", (result,), lambda: _put(ctx, stack.input_gradient, result))
        return result

    def step_jacobians(self, ctx: MatrixContext) -> Iterator[StepJacobians]:
        assert ctx.stack is not None
        device, stack = ctx.device, ctx.stack
        jacobian = CellJacobian(stack.sizes.walk.cell, self.hidden_size)
        pattern = jacobian.pattern
        for number, layer in enumerate(stack.layers):
            for direction in layer:
                walk = direction.walk
                values = device.empty((walk.size.steps, pattern.nnz, walk.size.batch), ctx.dtype)
                jacobian.fill(device, walk, values)
                if ctx.resets is not None:
                    values = ctx.resets.gather_jacobians(values, walk.reverse)
                way = "backward" if walk.reverse else "forward"
                yield StepJacobians(f"{type(self).__name__} l{number}", way, pattern, values)

    # ---- buffers ----

    def _stack_size(self, batch: int, steps: int, itemsize: int, has_resets: bool = False) -> StackSize:
        cell = resetting_form(self)[0] if has_resets else self.cell
        return StackSize(
            WalkSize(cell, steps, batch, self.hidden_size, itemsize), self.input_size, self.num_layers,
            self.directions, self.bias, self.outputs == "all" and not self.output, self.unit_parameters,
            self.projects, self.output,
        )  # fmt: skip

    def kept_shapes(self, batch: int, steps: int, has_resets: bool = False) -> dict[str, Shape]:
        """Return a dict from names to shapes of the arrays that a forward pass stores for the backward pass.

        These are the states and the gates of each inner layer and direction, (T, values per sample, B) each.
        B is `batch`. T is `steps`, or 2 `steps` with `has_resets`.
        """
        return kept_shapes(self._stack_size(batch, steps * (1 + has_resets), 0, has_resets))

    def check_resets(self) -> None:
        if self.forward_method == "newton":
            raise ArgumentError(
                f"{type(self).__name__} got resets with forward_method='newton': use forward_method='auto'"
            )


#: By the digest of a cell, `resetting_form` of it.
_resetting: dict[str, CellForm] = {}


def resetting_form(layer: MatrixRecurrent) -> tuple[CellForm, list[float]]:
    """A form like that of a layer, and the projected input of each gate at which its states become 0.

    An LSTM or GRU closes its gates. Other cells get a gate more, by which their new states are multiplied.
    """
    form = layer.cell
    if form is FORMS["lstm"]:  # c' = f c + i g, h' = o tanh(c')
        return form, [CLOSED, CLOSED, 0.0, 0.0]
    if form is FORMS["gru"]:  # h' = (1 - z) tanh(x_n + r u_n) + z h
        return form, [CLOSED, CLOSED, 0.0]
    cell: Cell = getattr(layer, "definition", None) or Cell.built_in(form.name)
    if cell.digest not in _resetting:
        _resetting[cell.digest] = Cell(
            f"{cell.name}_with_resets", gates=(*cell.gates, "keeps"), states=cell.states,
            parameters=cell.parameters, recurrent=cell.recurrent,
            step=partial(_keep_step, cell.step),
        ).form  # fmt: skip
    return _resetting[cell.digest], [0.0] * (form.gates + 1)


def _keep_step(step: Any, x: Any, u: Any, s: Any, p: Any) -> Any:
    """A step whose new states are multiplied by one more gate."""
    after = step(x, u, s, p)
    if isinstance(after, Mapping):
        return {name: x.keeps * value for name, value in after.items()}
    return [x.keeps * value for value in after]


def _spread(ctx: MatrixContext, sequences: Array) -> Array:
    """Sequences (B, T, columns) with the extra steps of resets, if there are any."""
    if ctx.resets is None:
        return sequences
    batch, _, columns = sequences.shape
    return ctx.resets.spread(sequences, ctx.buffer("spread", (batch, ctx.resets.steps, columns)))


def _put(ctx: MatrixContext, put: Callable[[Array], None], out: Array) -> None:
    """`put` sequences (B, T, columns) into `out`, without the extra steps of resets."""
    if ctx.resets is None:
        put(out)
        return
    batch, _, columns = out.shape
    spread = ctx.buffer("spread", (batch, ctx.resets.steps, columns))
    put(spread)
    out[...] = ctx.resets.gather(spread)
