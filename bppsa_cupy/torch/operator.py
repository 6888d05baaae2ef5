"""The operator `bppsa_cupy::over_time`: a recurrent pass that torch.compile leaves as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bppsa_cupy.torch.geometry import geometry_named
from bppsa_cupy.torch.passes import go_back, go_forward
from bppsa_cupy.torch.tickets import ticket_of


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
    outputs, saved = go_forward(geometry_named(text), lengths, x, states, parameters)
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
    layer = geometry_named(text).layer
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
    by_output: torch.Tensor,
    by_states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    input_shape: Sequence[int],
) -> list[torch.Tensor]:
    """The gradients by input, first states and parameters."""
    by_input, by_first, by_parameters = go_back(ticket, by_output, by_states, True, True, True)
    assert by_input is not None
    return [by_input, *by_first, *by_parameters]


@back_through_time.register_fake
def _(
    ticket: torch.Tensor,
    by_output: torch.Tensor,
    by_states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    input_shape: Sequence[int],
) -> list[torch.Tensor]:
    return [
        by_output.new_empty(tuple(input_shape)),
        *(g.new_empty(g.shape) for g in by_states),
        *(p.new_empty(p.shape) for p in parameters),
    ]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, _, states, parameters, _, _ = inputs
    ctx.save_for_backward(output[-1], *parameters)
    ctx.shape, ctx.count = tuple(x.shape), len(states)


def _back(ctx: Any, gradients: Any) -> Any:
    ticket, *parameters = ctx.saved_tensors
    by_output, *by_states = gradients[:-1]
    found = back_through_time(ticket, by_output, by_states, parameters, ctx.shape)
    by_first = found[1 : 1 + len(by_states)]
    return found[0], None, by_first[: ctx.count], found[1 + len(by_states) :], None, None


over_time.register_autograd(_back, setup_context=_keep)
