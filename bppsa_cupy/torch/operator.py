"""The operator `bppsa_cupy::over_time`: a recurrent pass that torch.compile leaves as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bppsa_cupy.torch.autograd import Gradients, second_derivatives
from bppsa_cupy.torch.engine_layer import engine_layer_named
from bppsa_cupy.torch.passes import go_forward
from bppsa_cupy.torch.tickets import ticket_of

#: Of `Gradients`: by parameters and input, as the operator always gives them.
ALL = True, True


@torch.library.custom_op("bppsa_cupy::over_time", mutates_args=())
def over_time(
    x: torch.Tensor,
    lengths: torch.Tensor | None,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    text: str,
    keep: bool,
) -> list[torch.Tensor]:
    """Output, states after the last step, and a ticket of the pass, which is kept where `keep` is set."""
    outputs, saved = go_forward(engine_layer_named(text), lengths, x, states, parameters, keep)
    return [*outputs, ticket_of(saved if keep else None)]


@over_time.register_fake
def _(
    x: torch.Tensor,
    lengths: torch.Tensor | None,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    text: str,
    keep: bool,
) -> list[torch.Tensor]:
    layer = engine_layer_named(text).layer
    batch = x.shape[0 if layer.batch_first else 1]
    features = layer.directions * layer.hidden_size
    state = layer.num_layers * layer.directions, batch, layer.hidden_size
    return [
        x.new_empty((*x.shape[:2], features)),
        *(x.new_empty(state) for _ in range(layer.cell.states)),
        torch.empty(1, dtype=torch.int64, device="cpu"),
    ]


@torch.library.custom_op("bppsa_cupy::back_through_time", mutates_args=())
def back_through_time(
    ticket: torch.Tensor,
    lengths: torch.Tensor | None,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    by_output: torch.Tensor,
    by_states: Sequence[torch.Tensor],
    text: str,
) -> list[torch.Tensor]:
    """The gradients by input, first states and parameters."""
    tensors = x, *states, *parameters, by_output, *by_states
    return list(Gradients.forward(engine_layer_named(text), ALL, len(states), ticket, lengths, *tensors))


@back_through_time.register_fake
def _(
    ticket: torch.Tensor,
    lengths: torch.Tensor | None,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    by_output: torch.Tensor,
    by_states: Sequence[torch.Tensor],
    text: str,
) -> list[torch.Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor in (x, *states, *parameters)]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, lengths, states, parameters, ctx.text, _ = inputs
    ctx.save_for_backward(output[-1], lengths, x, *states, *parameters)
    ctx.end = 3 + len(states)


def _back(ctx: Any, gradients: Any) -> Any:
    given, end = ctx.saved_tensors, ctx.end
    (ticket, lengths, x, *states), parameters = given[:end], given[end:]
    by_output, *by_states = gradients[:-1]
    found = back_through_time(ticket, lengths, x, states, parameters, by_output, by_states, ctx.text)
    return found[0], None, found[1 : 1 + len(states)], found[1 + len(states) :], None, None


over_time.register_autograd(_back, setup_context=_keep)


def _keep_gradients(ctx: Any, inputs: Any, output: Any) -> None:
    _, lengths, x, states, parameters, by_output, by_states, ctx.text = inputs
    ctx.save_for_backward(lengths, x, *states, *parameters, by_output, *by_states)
    ctx.counts = len(states), len(parameters)


def _back_from_gradients(ctx: Any, gradients: Any) -> Any:
    lengths, *tensors = ctx.saved_tensors
    states, parameters = ctx.counts
    needed = [tensor.requires_grad for tensor in tensors]
    engine = engine_layer_named(ctx.text)
    found = list(second_derivatives(engine, ALL, states, lengths, tensors, needed, gradients))
    first, last = 1 + states, 1 + states + parameters
    return (None, None, found[0], found[1:first], found[first:last], found[last], found[last + 1 :], None)


back_through_time.register_autograd(_back_from_gradients, setup_context=_keep_gradients)
