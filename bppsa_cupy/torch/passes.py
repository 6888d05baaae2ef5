"""A recurrent pass as PyTorch's autograd takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bppsa_cupy.errors import PassError
from bppsa_cupy.functional import Saved, vjp
from bppsa_cupy.functional.checks import checked_arrays
from bppsa_cupy.functional.passes import over
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

        def arrays() -> Any:
            by_name = dict(zip(names, map(array_of, whole), strict=True))
            return checked_arrays(layer, device, given.dtype, by_name, None)

        y, saved = over(
            layer, device, given, tuple((p.data_ptr(), p.shape) for p in whole), arrays,
            lengths=None if lengths is None else array_of(lengths),
            states=tuple(map(array_of, states)) or None,
        )  # fmt: skip
        after = saved.states if isinstance(saved.states, tuple) else (saved.states,)
        return [tensor_of(y), *map(tensor_of, after)], saved


def go_back(
    ticket: torch.Tensor,
    by_output: torch.Tensor | None,
    by_states: Sequence[torch.Tensor | None],
    parameter_gradients: bool,
    input_gradient: bool,
) -> tuple[torch.Tensor | None, list[torch.Tensor], list[torch.Tensor]]:
    """The gradients by input, first states and parameters; None or empty where they are not asked for.

    by_output, by_states  by what `go_forward` gave; zeros for None
    """
    saved = pass_of(ticket)
    device, dtype = saved.context.device, saved.context.dtype
    given = next(tensor for tensor in (by_output, *by_states) if tensor is not None)
    with on_stream_of(given):
        g = device.zeros(saved.output_shape, dtype) if by_output is None else array_of(by_output)
        states = None
        if any(tensor is not None for tensor in by_states):
            after = saved.states if isinstance(saved.states, tuple) else (saved.states,)
            states = tuple(
                device.zeros(a.shape, dtype) if tensor is None else array_of(tensor)
                for tensor, a in zip(by_states, after, strict=True)
            )
        found = vjp(
            saved,
            g,
            state_gradients=states,
            parameter_gradients=parameter_gradients,
            input_gradient=input_gradient,
        )
        first = found.states if isinstance(found.states, tuple) else (found.states,)
        return (
            None if found.input is None else tensor_of(found.input),
            list(map(tensor_of, first)),
            list(map(tensor_of, found.parameters.values())),
        )


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
        if by_output is None and all(g is None for g in by_states):
            return (None,) * len(ctx.needs_input_grad)
        needed, count = ctx.needs_input_grad[3:], ctx.count
        wanted = any(needed[1 + count :])
        by_input, by_first, by_parameters = go_back(ticket, by_output, by_states, wanted, needed[0])
        found: Any = (by_input, *by_first[:count], *(by_parameters or (None,) * len(parameters)))
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
