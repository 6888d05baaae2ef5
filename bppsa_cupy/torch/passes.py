"""A recurrent pass as PyTorch's autograd takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.errors import PassError
from bppsa_cupy.functional import Saved
from bppsa_cupy.functional import passes as functional
from bppsa_cupy.functional.checks import checked_arrays
from bppsa_cupy.torch.arrays import array_of, host, on_gpu_of
from bppsa_cupy.torch.geometry import Arguments, Geometry, geometry_of
from bppsa_cupy.torch.tickets import pass_of, ticket_of


def go_forward(
    geometry: Geometry,
    lengths: torch.Tensor | None,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
) -> tuple[list[torch.Tensor], Saved]:
    """The output and the states after the last step, and what the way back needs."""
    if x.is_cpu:
        return _forward_on(host(), torch.from_numpy, geometry, lengths, x, states, parameters)
    with on_gpu_of(x) as device:
        return _forward_on(device, torch.from_dlpack, geometry, lengths, x, states, parameters)


def _forward_on(
    device: Device,
    to_tensor: Callable[[Array], torch.Tensor],
    geometry: Geometry,
    lengths: torch.Tensor | None,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
) -> tuple[list[torch.Tensor], Saved]:
    given, whole = array_of(x), []
    addresses: list[Any] = []
    for parameter in parameters:
        tensor = parameter.contiguous()
        whole.append(tensor)
        addresses += tensor.data_ptr(), tensor.shape
    arrays = partial(_arrays, geometry, device, given.dtype, whole)
    ends = None if lengths is None else array_of(lengths)
    first = tuple(map(array_of, states)) if states else None
    layer, _, pool = geometry
    saved = functional.begin(layer, device, given, tuple(addresses), arrays, ends, first, pool)
    y = functional.run(saved, given, ends, first, None)
    after = saved.states
    return [to_tensor(y), *map(to_tensor, after if isinstance(after, tuple) else (after,))], saved


def _arrays(geometry: Geometry, device: Device, dtype: np.dtype, parameters: Sequence[torch.Tensor]) -> Any:
    """Parameters and buffers of a layer, by name. Raises ShapeError."""
    by_name = dict(zip(geometry.names, map(array_of, parameters), strict=True))
    return checked_arrays(geometry.layer, device, dtype, by_name, None)


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
    wanted = want_parameters, want_input, want_states
    if saved.slot.ctx.device is host():
        return _back_on(host(), torch.from_numpy, saved, by_output, by_states, wanted)
    given = next(tensor for tensor in (by_output, *by_states) if tensor is not None)
    with on_gpu_of(given) as device:
        return _back_on(device, torch.from_dlpack, saved, by_output, by_states, wanted)


def _back_on(
    device: Device,
    to_tensor: Callable[[Array], torch.Tensor],
    saved: Saved,
    by_output: torch.Tensor | None,
    by_states: Sequence[torch.Tensor | None],
    wanted: tuple[bool, bool, bool],
) -> tuple[torch.Tensor | None, list[torch.Tensor], list[torch.Tensor]]:
    dtype, shapes = saved.slot.ctx.dtype, saved.slot.shapes
    gradient = device.zeros(shapes.output, dtype) if by_output is None else array_of(by_output)
    after = None
    for tensor in by_states:
        if tensor is not None:
            after = tuple(
                device.zeros(shape, dtype) if tensor is None else array_of(tensor)
                for tensor, shape in zip(by_states, shapes.states, strict=True)
            )
            break
    by_parameters, by_input, by_first = functional.go_back(saved, gradient, after, *wanted)
    first: Any = () if by_first is None else by_first if isinstance(by_first, tuple) else (by_first,)
    return (
        None if by_input is None else to_tensor(by_input),
        list(map(to_tensor, first)),
        list(map(to_tensor, by_parameters.values())),
    )


class Pass(torch.autograd.Function):
    """`go_forward` and `go_back`. What it saves are a ticket of the pass and the parameters, so that PyTorch
    frees them, drops them in a checkpoint, and refuses the way back where a parameter has changed."""

    @staticmethod
    def forward(ctx: Any, geometry: Geometry, lengths: Any, count: int, x: Any, *tensors: Any) -> Any:
        """`tensors` are `count` states before the first step, and the parameters."""
        outputs, saved = go_forward(geometry, lengths, x, tensors[:count], tensors[count:])
        ctx.save_for_backward(ticket_of(saved), *tensors[count:])
        ctx.geometry, ctx.count = geometry, count
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
            found = Once.apply(ctx.geometry, len(found), *found, by_output, *by_states, *parameters)
        return (None, None, None, *found)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise PassError(_refusal(ctx.geometry, "forward-mode derivatives"))


#: `Pass.apply` without what it does for torch.func, which modules refuse: 3 % of a small step.
apply: Any = super(torch.autograd.Function, Pass).apply


class Once(torch.autograd.Function):
    """Gradients that have no gradients of their own: going back through them raises PassError."""

    @staticmethod
    def forward(ctx: Any, geometry: Geometry, count: int, *tensors: Any) -> Any:
        """`tensors` are `count` gradients, and what they follow from."""
        ctx.geometry = geometry
        return tuple(None if tensor is None else tensor.detach() for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise PassError(_refusal(ctx.geometry, "second derivatives"))


def _refusal(geometry: Geometry, what: str) -> str:
    layer = geometry.layer
    name = f"{type(layer).__name__}({layer.input_size}, {layer.hidden_size})"
    return f"{name} has no {what} in bppsa_cupy.torch: revert(model) gives torch.nn's module, which has"


def run(
    arguments: Arguments,
    x: torch.Tensor,
    lengths: torch.Tensor | None,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
) -> Sequence[torch.Tensor]:
    """Output and last states: by autograd's function, or in a graph that torch.compile makes by the operator,
    which costs more a call and is opaque to it."""
    if torch.compiler.is_compiling():
        keep = torch.is_grad_enabled() and any(t.requires_grad for t in (x, *states, *parameters))
        text = "|".join(map(str, arguments))
        outputs = torch.ops.bppsa_cupy.over_time(x, lengths, list(states), list(parameters), text, keep)
        return outputs[:-1]
    return apply(geometry_of(*arguments), lengths, len(states), x, *states, *parameters)
