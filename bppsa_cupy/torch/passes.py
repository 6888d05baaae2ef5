"""A recurrent pass of the engine on tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from bppsa_cupy.devices import Array, Device
from bppsa_cupy.functional import Saved
from bppsa_cupy.functional import passes as functional
from bppsa_cupy.functional.passes import checked_arrays
from bppsa_cupy.torch.arrays import array_of, host, on_gpu_of, on_host
from bppsa_cupy.torch.engine_layer import EngineLayer
from bppsa_cupy.torch.graphs import hide_from_dynamo


@hide_from_dynamo  # without gradients it is called first
def go_forward(
    engine: EngineLayer,
    lengths: torch.Tensor | None,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    keep: bool,
) -> tuple[list[torch.Tensor], Saved]:
    """The output and the states after the last step, and what the way back needs, where `keep` is set."""
    if x.is_cpu:
        return on_host(_forward_on, torch.from_numpy, engine, lengths, x, states, parameters, keep)
    with on_gpu_of(x) as device:
        return _forward_on(device, torch.from_dlpack, engine, lengths, x, states, parameters, keep)


def _forward_on(
    device: Device,
    to_tensor: Callable[[Array], torch.Tensor],
    engine: EngineLayer,
    lengths: torch.Tensor | None,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
    keep: bool,
) -> tuple[list[torch.Tensor], Saved]:
    given, whole = array_of(x), []
    addresses: list[Any] = []
    for parameter in parameters:
        tensor = parameter.contiguous()
        whole.append(tensor)
        addresses += tensor.data_ptr(), tensor.shape
    arrays = partial(_arrays, engine, device, given.dtype, whole)
    ends = None if lengths is None else array_of(lengths)
    first = tuple(map(array_of, states)) if states else None
    layer, _, pool = engine
    saved = functional.begin(layer, device, given, tuple(addresses), arrays, ends, first, keep, pool)
    y = functional.run(saved, given, ends, first)
    after = saved.states
    return [to_tensor(y), *map(to_tensor, after if isinstance(after, tuple) else (after,))], saved


def _arrays(engine: EngineLayer, device: Device, dtype: np.dtype, parameters: Sequence[torch.Tensor]) -> Any:
    """Parameters and buffers of a layer, by name. Raises ShapeError."""
    by_name = dict(zip(engine.names, map(array_of, parameters), strict=True))
    return checked_arrays(engine.layer, device, dtype, by_name, None)


def go_back(
    saved: Saved,
    by_output: torch.Tensor | None,
    by_states: Sequence[torch.Tensor | None],
    want_parameters: bool,
    want_input: bool,
    want_states: bool,
) -> tuple[torch.Tensor | None, list[torch.Tensor], list[torch.Tensor]]:
    """Return the gradients with respect to input, first states and parameters.

    Gradients that are not requested are None or empty.

    by_output, by_states  by what `go_forward` gave; zeros for None
    """
    wanted = want_parameters, want_input, want_states
    if saved.slot.ctx.device is host():
        return on_host(_back_on, torch.from_numpy, saved, by_output, by_states, wanted)
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


# ---- tickets: a pass that a tensor holds, which autograd saves, hands on and frees ----

#: By the address of the memory of the ticket that keeps it.
_passes: dict[int, Saved] = {}


class _Ticket(np.ndarray[Any, Any]):
    """An array of one integer, whose address stands for a pass, which ends with it."""

    address = 0

    def __del__(self) -> None:
        _passes.pop(self.address, None)


def ticket_of(saved: Saved | None) -> torch.Tensor:
    """A tensor (1,) int64 on the CPU whose memory keeps a pass alive; or no pass.

    So the pass is freed when autograd frees what it saved: after the way back, or where a checkpoint does.
    """
    if saved is None:
        return torch.zeros(1, dtype=torch.int64)
    memory = _Ticket(1, np.int64)
    ticket = torch.from_numpy(memory)
    address = memory.address = ticket.data_ptr()
    _passes[address] = saved
    return ticket


def pass_of(ticket: torch.Tensor) -> Saved | None:
    """The pass that a ticket keeps; None for a copy of one."""
    return _passes.get(ticket.data_ptr())
