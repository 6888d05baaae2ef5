"""A recurrent pass as PyTorch's autograd takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bppsa_cupy.devices import Array
from bppsa_cupy.errors import PassError
from bppsa_cupy.functional import Saved
from bppsa_cupy.functional import passes as functional
from bppsa_cupy.functional.checks import checked_arrays
from bppsa_cupy.torch.arrays import array_of, device_of, on_stream_of, tensor_of
from bppsa_cupy.torch.geometry import layer_of
from bppsa_cupy.torch.tickets import pass_of, ticket_of


def go_forward(
    text: str,
    lengths: torch.Tensor | None,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
) -> tuple[list[torch.Tensor], Saved]:
    """The output and the states after the last step, and what the way back needs.

    text  of the module's geometry, as `layer_of` takes it
    """
    layer, names = layer_of(text)
    with on_stream_of(x):
        device = device_of(x)
        given = device.asarray(array_of(x))
        whole = [parameter.contiguous() for parameter in parameters]
        addresses = tuple([(parameter.data_ptr(), parameter.shape) for parameter in whole])

        def arrays() -> Any:
            by_name = dict(zip(names, map(array_of, whole), strict=True))
            return checked_arrays(layer, device, given.dtype, by_name, None)

        ends = None if lengths is None else array_of(lengths)
        first = tuple(map(array_of, states)) or None
        saved = functional.begin(layer, device, given, addresses, arrays, ends, first)
        y = functional.run(saved, given, ends, first, None)
        return [tensor_of(y), *map(tensor_of, parts(saved.states))], saved


def go_back(
    ticket: torch.Tensor,
    by_output: torch.Tensor | None,
    by_states: Sequence[torch.Tensor | None],
    want_parameters: bool,
    want_input: bool,
    want_states: bool,
) -> tuple[torch.Tensor | None, list[torch.Tensor], list[torch.Tensor]]:
    """The gradients by input, first states and parameters; None or empty where they are not wanted.

    by_output, by_states  by what `go_forward` gave; zeros for None
    """
    saved = pass_of(ticket)
    ctx = saved.context
    device = ctx.device
    given = next(tensor for tensor in (by_output, *by_states) if tensor is not None)
    with on_stream_of(given):
        if by_output is None:
            gradient = device.zeros(saved.slot.shapes.output, ctx.dtype)
        else:
            gradient = device.asarray(array_of(by_output))
        after = None
        if any(tensor is not None for tensor in by_states):
            after = tuple(
                device.zeros(shape, ctx.dtype) if tensor is None else array_of(tensor)
                for tensor, shape in zip(by_states, saved.slot.shapes.states, strict=True)
            )
        found = functional.go_back(saved, gradient, after, want_parameters, want_input, want_states)
        return (
            None if found.input is None else tensor_of(found.input),
            [tensor_of(array) for array in parts(found.states)] if want_states else [],
            [tensor_of(array) for array in found.parameters.values()],
        )


def parts(states: Any) -> tuple[Array, ...]:
    """The arrays of a state."""
    return states if isinstance(states, tuple) else (states,)


class Pass(torch.autograd.Function):
    """`go_forward` and `go_back`. What it saves are a ticket of the pass and the parameters, so that PyTorch
    frees them, drops them in a checkpoint, and refuses the way back where a parameter has changed."""

    @staticmethod
    def forward(ctx: Any, text: str, lengths: Any, count: int, x: Any, *tensors: Any) -> Any:
        """`tensors` are `count` states before the first step, and the parameters."""
        outputs, saved = go_forward(text, lengths, x, tensors[:count], tensors[count:])
        ctx.save_for_backward(ticket_of(saved), *tensors[count:])
        ctx.text, ctx.count = text, count
        ctx.set_materialize_grads(False)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, by_output: Any, *by_states: Any) -> Any:
        ticket, *parameters = ctx.saved_tensors
        needed, count = ctx.needs_input_grad, ctx.count
        if by_output is None and all(gradient is None for gradient in by_states):
            return (None,) * len(needed)
        wanted = True in needed[4 + count :]
        by_input, by_first, by_parameters = go_back(
            ticket, by_output, by_states, wanted, needed[3], count > 0
        )
        found: Any = (by_input, *by_first, *(by_parameters or (None,) * len(parameters)))
        if torch.is_grad_enabled():
            found = Once.apply(ctx.text, len(found), *found, by_output, *by_states, *parameters)
        return (None, None, None, *found)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise PassError(_refusal(ctx.text, "forward-mode derivatives"))


class Once(torch.autograd.Function):
    """Gradients that have no gradients of their own: going back through them raises PassError."""

    @staticmethod
    def forward(ctx: Any, text: str, count: int, *tensors: Any) -> Any:
        """`tensors` are `count` gradients, and what they follow from."""
        ctx.text = text
        return tuple(None if tensor is None else tensor.detach() for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise PassError(_refusal(ctx.text, "second derivatives"))


def _refusal(text: str, what: str) -> str:
    layer, _ = layer_of(text)
    name = f"{type(layer).__name__}({layer.input_size}, {layer.hidden_size})"
    return f"{name} has no {what} in bppsa_cupy.torch: revert(model) gives torch.nn's module, which has"


def run(
    text: str,
    x: torch.Tensor,
    lengths: torch.Tensor | None,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
) -> Sequence[torch.Tensor]:
    """Output and last states: by autograd's function, or in a graph that torch.compile makes by the operator,
    which costs more a call and is opaque to it."""
    if torch.compiler.is_compiling():
        keep = torch.is_grad_enabled() and any(t.requires_grad for t in (x, *states, *parameters))
        outputs = torch.ops.bppsa_cupy.over_time(x, lengths, list(states), list(parameters), text, keep)
        return outputs[:-1]
    return Pass.apply(text, lengths, len(states), x, *states, *parameters)
