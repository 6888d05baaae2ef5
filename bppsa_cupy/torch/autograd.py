"""A recurrent pass as PyTorch's autograd takes it, and as an operator that torch.compile leaves as it is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.autograd import forward_ad

from bppsa_cupy.errors import PassError
from bppsa_cupy.torch.cells import unrolled
from bppsa_cupy.torch.engine import (
    Arguments,
    EngineLayer,
    engine_layer_named,
    engine_layer_of,
    go_back,
    go_forward,
    operator,
    pass_of,
    ticket_of,
)
from bppsa_cupy.torch.transforms import hide_from_dynamo, is_batched, is_recorded, mapped, over_batched


class RecurrentPass(torch.autograd.Function):
    """`go_forward`, whose gradients are `Gradients`. Its last output is the pass's ticket.

    It saves the ticket, and what the pass was given: so PyTorch frees them, drops them in a checkpoint, and
    refuses the way back where one of them has changed.
    """

    @staticmethod
    @hide_from_dynamo
    def forward(engine: EngineLayer, bounds: Any, count: int, x: Any, *tensors: Any) -> Any:
        """`tensors` are `count` states before the first step, and the parameters."""
        outputs, saved = go_forward(engine, bounds, x, tensors[:count], tensors[count:], True)
        return (*outputs, ticket_of(saved))

    @staticmethod
    @hide_from_dynamo
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.engine, bounds, ctx.count, *tensors = inputs
        ctx.mark_non_differentiable(output[-1])
        ctx.save_for_backward(output[-1], bounds, *tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    @hide_from_dynamo
    def backward(ctx: Any, *gradients: Any) -> Any:
        by_output, *by_states, _ = gradients
        if torch._C._are_functorch_transforms_active():
            return _gradients(ctx, gradients[:-1])
        quick, some = not torch.is_grad_enabled(), False
        for gradient in gradients:
            if gradient is not None:
                some = True
                quick = quick and not is_batched(gradient)
        saved = pass_of(ctx.saved_tensors[0]) if quick and some else None
        if saved is None:
            parameters = ctx.next_functions[-len(ctx.engine.names) :]
            return _gradients(ctx, gradients[:-1], any(_is_asked_for(node) for node, _ in parameters))
        needed, count = ctx.needs_input_grad, ctx.count
        wanted = True in needed[4 + count :]
        by_input, by_first, by_parameters = go_back(saved, by_output, by_states, wanted, needed[3], count > 0)
        if not wanted:
            return None, None, None, by_input, *by_first, *(None,) * (len(needed) - 4 - count)
        return None, None, None, by_input, *by_first, *by_parameters

    @staticmethod
    def vmap(
        info: Any, dims: Any, engine: EngineLayer, bounds: Any, count: int, x: Any, *tensors: Any
    ) -> Any:
        sequences = 0 if engine.layer.batch_first else 1
        axes = 0, sequences, *(1,) * count, *(None,) * len(engine.names)

        def call(bounds: Any, *tensors: Any) -> Any:
            return RecurrentPass.apply(engine, bounds, count, *tensors)

        return mapped(
            call, info.batch_size, (bounds, x, *tensors), (dims[1], *dims[3:]), axes,
            (sequences, *(1,) * engine.layer.state_count, None),
        )  # fmt: skip

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise _refusal(ctx.engine)


#: `RecurrentPass.apply` without what it does for torch.func: 3 % of a small step.
_apply: Any = super(torch.autograd.Function, RecurrentPass).apply


class Gradients(torch.autograd.Function):
    """The gradients of a pass, by the input where it is wanted, by the first states, and by the parameters
    where they are wanted.

    Their own derivatives, by all that they follow from, are those of the pass in PyTorch's operations.
    """

    @staticmethod
    def forward(
        engine: EngineLayer,
        wanted: tuple[bool, bool],
        count: int,
        ticket: torch.Tensor,
        bounds: Any,
        *tensors: Any,
    ) -> tuple[torch.Tensor, ...]:
        """`wanted` is of parameters and input. `tensors` are the input, `count` states, the parameters, and
        the gradients with respect to output and last states, None for zeros.

        The pass is gone through again where `ticket` is of none: a hook for saved tensors made a copy of it;
        or of one of another batch: this one has others mapped into it.
        """
        x, states, parameters, (by_output, *by_states) = _parts(engine, count, tensors)
        saved = pass_of(ticket)
        if saved is None or saved.slot.key[2] != x.shape:
            _, saved = go_forward(engine, bounds, x, states, parameters, True)
        by_input, by_first, by_parameters = go_back(saved, by_output, by_states, *wanted, count > 0)
        return (*by_first, *by_parameters) if by_input is None else (by_input, *by_first, *by_parameters)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.engine, ctx.wanted, ctx.count, _, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The derivatives of the gradients, weighted by `gradients`: of the pass in PyTorch's operations, so
        that they have derivatives of any order."""
        engine, wanted, count, (bounds, *tensors) = ctx.engine, ctx.wanted, ctx.count, ctx.saved_tensors
        places = [place for place, is_needed in enumerate(ctx.needs_input_grad[5:]) if is_needed]

        def results(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            replaced = list(tensors)
            for place, value in zip(places, values, strict=True):
                replaced[place] = value
            x, states, parameters, by = _parts(engine, count, replaced)

            def forward(*chosen: Any) -> Any:
                remaining = iter(chosen)
                inputs = next(remaining) if wanted[1] else x
                first = [next(remaining) for _ in states]
                return unrolled(engine, bounds, inputs, first, list(remaining) or parameters)

            chosen = (x,) * wanted[1] + (*states,) + (*parameters,) * wanted[0]
            outputs, pull, *_ = torch.func.vjp(forward, *chosen)
            return pull(_weights(by, outputs))

        first_gradients, pull, *_ = torch.func.vjp(results, *(tensors[place] for place in places))

        def weighted(*gradients: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
            return pull(_weights(gradients, first_gradients))

        derivatives: list[torch.Tensor | None] = [None] * len(tensors)
        for place, derivative in zip(places, over_batched(weighted, gradients), strict=True):
            derivatives[place] = derivative
        return (None,) * 5 + tuple(derivatives)

    @staticmethod
    def vmap(
        info: Any, dims: Any, engine: EngineLayer, wanted: Any, count: int, ticket: Any, *tensors: Any
    ) -> Any:
        sequences = 0 if engine.layer.batch_first else 1
        first, states = (1,) * count, (1,) * engine.layer.state_count
        axes = None, 0, sequences, *first, *(None,) * len(engine.names), sequences, *states
        results = (sequences,) * wanted[1] + first
        call = partial(Gradients.apply, engine, wanted, count)
        return mapped(
            call, info.batch_size, (ticket, *tensors), dims[3:], axes, None if wanted[0] else results
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise _refusal(ctx.engine)


def _weights(
    gradients: Sequence[torch.Tensor | None], results: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Gradients with respect to results, zeros for None."""
    pairs = zip(gradients, results, strict=True)
    return tuple(torch.zeros_like(result) if gradient is None else gradient for gradient, result in pairs)


def _parts(engine: EngineLayer, count: int, tensors: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
    """The input, the states, the parameters, and the gradients."""
    end = 1 + count + len(engine.names)
    return tensors[0], tensors[1 : 1 + count], tensors[1 + count : end], tensors[end:]


def _gradients(ctx: Any, gradients: Sequence[Any], is_asked: bool = True) -> tuple[torch.Tensor | None, ...]:
    """What a pass's `backward` gives, by `Gradients`; by the parameters where `is_asked`."""
    needed, count = ctx.needs_input_grad, ctx.count
    if all(gradient is None for gradient in gradients):
        return (None,) * len(needed)
    wanted = True in needed[4 + count :] and is_asked, needed[3]
    arguments = ctx.engine, wanted, count, *ctx.saved_tensors
    gradients_of_inputs = over_batched(partial(Gradients.apply, *arguments), gradients)
    by_input = () if wanted[1] else (None,)
    places = (None, None, None, *by_input, *gradients_of_inputs)
    return places + (None,) * (len(needed) - len(places))


def _is_asked_for(node: Any) -> bool:
    """Whether the way back that is under way takes the gradient that `node` is given: that of x alone, as by
    torch.autograd.grad(y, x), does not take those of parameters."""
    try:
        return node is not None and torch._C._will_engine_execute_node(node)
    except RuntimeError:  # it says no more of leaves whose gradients torch.autograd.grad gives
        return True


def _refusal(engine: EngineLayer) -> PassError:
    layer = engine.layer
    return PassError(
        f"{type(layer).__name__}({layer.input_size}, {layer.hidden_size}) has no forward-mode derivatives in "
        "bppsa_cupy.torch: use reverse mode, or revert(model), which restores the torch.nn module"
    )


def apply(engine: EngineLayer, bounds: Any, states: Sequence[Any], x: Any, parameters: Any) -> Any:
    """Output and last states by autograd's function, where no graph is recorded."""
    if is_without_derivatives():
        return go_forward(engine, bounds, x, states, parameters, False)[0]
    return _apply(engine, bounds, len(states), x, *states, *parameters)[:-1]


def run_over_time(
    arguments: Arguments,
    x: torch.Tensor,
    bounds: torch.Tensor | None,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
) -> Sequence[torch.Tensor]:
    """Output and last states: by autograd's function; where PyTorch records the call by the operator, which
    costs more."""
    if is_recorded():
        keep = torch.is_grad_enabled() and any(t.requires_grad for t in (x, *states, *parameters))
        keep = keep or torch.jit.is_tracing()  # the graph serves calls with gradients and without
        text = "|".join(map(str, arguments))
        outputs = torch.ops.bppsa_cupy.over_time(x, bounds, list(states), list(parameters), text, keep)
        return outputs[:-1]
    engine = engine_layer_of(*arguments)
    if torch._C._are_functorch_transforms_active():
        return RecurrentPass.apply(engine, bounds, len(states), x, *states, *parameters)[:-1]
    return apply(engine, bounds, states, x, parameters)


def is_without_derivatives() -> bool:
    """Whether nothing that is computed now is differentiated, in either mode."""
    return not torch.is_grad_enabled() and forward_ad._current_level < 0


# ---- operators ----

#: Of `Gradients`: by parameters and input, as the operator always gives them.
ALL = True, True


@operator(
    "over_time",
    "(Tensor x, Tensor? bounds, Tensor[] states, Tensor[] parameters, str text, bool keep) -> Tensor[]",
)
def over_time(x: Any, bounds: Any, states: Any, parameters: Any, text: str, keep: bool) -> list[torch.Tensor]:
    """Output, states after the last step, and a ticket of the pass, which is kept where `keep` is set."""
    outputs, saved = go_forward(engine_layer_named(text), bounds, x, states, parameters, keep)
    return [*outputs, ticket_of(saved if keep else None)]


@over_time.register_fake
def _(x: Any, bounds: Any, states: Any, parameters: Any, text: str, keep: bool) -> list[torch.Tensor]:
    layer = engine_layer_named(text).layer
    batch = x.shape[0 if layer.batch_first else 1]
    state = layer.num_layers * layer.directions, batch, layer.hidden_size
    return [
        x.new_empty((*x.shape[:2], layer.directions * layer.hidden_size)),
        *(x.new_empty(state) for _ in range(layer.cell.states)),
        torch.empty(1, dtype=torch.int64, device="cpu"),
    ]


@operator(
    "back_through_time",
    "(Tensor ticket, Tensor? bounds, Tensor x, Tensor[] states, Tensor[] parameters, Tensor by_output,"
    " Tensor[] by_states, str text) -> Tensor[]",
)
def back_through_time(
    ticket: Any, bounds: Any, x: Any, states: Any, parameters: Any, *gradients: Any
) -> list[torch.Tensor]:
    """The gradients with respect to input, first states and parameters."""
    by_output, by_states, text = gradients
    tensors = x, *states, *parameters, by_output, *by_states
    return list(Gradients.forward(engine_layer_named(text), ALL, len(states), ticket, bounds, *tensors))


@back_through_time.register_fake
def _(ticket: Any, bounds: Any, x: Any, states: Any, parameters: Any, *_: Any) -> list[torch.Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor in (x, *states, *parameters)]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, bounds, states, parameters, ctx.text, _ = inputs
    ctx.save_for_backward(output[-1], bounds, x, *states, *parameters)
    ctx.end = 3 + len(states)


def _back(ctx: Any, gradients: Any) -> Any:
    saved, end = ctx.saved_tensors, ctx.end
    (ticket, bounds, x, *states), parameters = saved[:end], saved[end:]
    by_output, *by_states = gradients[:-1]
    derivatives = back_through_time(ticket, bounds, x, states, parameters, by_output, by_states, ctx.text)
    return derivatives[0], None, derivatives[1 : 1 + len(states)], derivatives[1 + len(states) :], None, None


over_time.register_autograd(_back, setup_context=_keep)
