"""The Jacobians of a recurrence that is written in PyTorch, by torch.func."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bppsa_cupy.errors import DeviceError, PassError, ShapeError
from bppsa_cupy.records.records import JacobianRecords, step_records
from bppsa_cupy.system.memory import free_host_memory
from bppsa_cupy.torch import checks


def jacobians_of_steps(
    step: Callable[[Any, Any], Any], x: Any, h0: Any, batch_first: bool
) -> JacobianRecords:
    """The records of every step of a recurrence, called as its caller would: in order, on a batch."""
    states = h0 if isinstance(h0, (tuple, list)) else (h0,)
    if not isinstance(x, torch.Tensor) or not all(isinstance(state, torch.Tensor) for state in states):
        raise ShapeError(
            f"jacobians of a step got x of {type(x).__name__} and h0 of {type(h0).__name__}: it takes a "
            "tensor, and a tensor or a tuple of them"
        )
    axes, dtype = states[0].dim(), states[0].dtype
    if any(state.dim() != axes or state.dtype != dtype for state in states) or axes not in (1, 2):
        raise ShapeError(
            f"jacobians of a step got h0 of {', '.join(map(_shown, states))}: it takes (B, S), or (S,) "
            "without a batch, all of one dtype"
        )
    if dtype not in checks.DTYPES:
        raise ShapeError(f"jacobians of a step got h0 of {dtype}: it takes torch.float32 or torch.float64")
    batched = axes == 2
    if batch_first and batched and x.dim() > 1:
        x = x.swapaxes(0, 1)
    batch = states[0].shape[0] if batched else 1
    if not x.dim() or not len(x) or (batched and (x.dim() < 2 or x.shape[1] != batch)):
        takes = f"(T, {batch}, ...), or (B, T, ...) with batch_first=True" if batched else "(T, ...)"
        raise ShapeError(
            f"jacobians of a step got x of {tuple(x.shape)} and h0 of {_shown(states[0])}: it takes {takes}"
        )
    sizes = [state.shape[-1] for state in states]
    total = sum(sizes)
    needed = len(x) * batch * total**2 * states[0].element_size()
    if 2 * needed > (free := free_host_memory()):
        raise DeviceError(
            f"jacobians of {len(x)} steps of {batch} samples take {2 * needed} bytes, {free} are free: take "
            "fewer steps, or samples"
        )
    name = name_of(step)

    def flat_step(x_t: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        parts = h.split(sizes, -1)
        result = step(x_t, tuple(parts) if isinstance(h0, (tuple, list)) else parts[0])
        return _joined(name, result, states)

    matrices = np.empty((len(x), batch, total, total), str(dtype).removeprefix("torch."))
    h = torch.cat([state.detach() for state in states], -1)
    basis = torch.eye(total, dtype=dtype, device=h.device)
    basis = basis[:, None].expand(total, batch, total) if batched else basis
    with torch.no_grad():
        for t, x_t in enumerate(x.detach()):
            traced: Any = torch.func.vjp(lambda state, x_t=x_t: flat_step(x_t, state), h)
            h, back = traced[0].detach(), traced[1]
            if not t and batch > 1:
                _check_samples(name, back, h)
            by_output = torch.func.vmap(lambda cotangent, back=back: back(cotangent)[0])(basis)
            matrices[t] = by_output.reshape(total, batch, total).permute(1, 2, 0).cpu().numpy()
    return step_records(name, matrices)


def _joined(name: str, result: Any, states: Any) -> torch.Tensor:
    """The state after a step as one tensor. Raises ShapeError unless it is of the shapes before it."""
    after = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    shapes = [tuple(state.shape) for state in states]
    if [tuple(part.shape) if isinstance(part, torch.Tensor) else None for part in after] != shapes:
        told = ", ".join(_shown(p) if isinstance(p, torch.Tensor) else type(p).__name__ for p in after)
        raise ShapeError(
            f"jacobians: {name}(x_t, h) gave {told} for h of {', '.join(map(_shown, states))}: a step "
            "gives the next state, of the same shapes"
        )
    return torch.cat(after, -1)


def _check_samples(name: str, back: Callable[..., Any], h: torch.Tensor) -> None:
    """Raise PassError where the state of one sample follows the state of another before it."""
    weights = torch.cos(torch.arange(h.shape[1], dtype=h.dtype, device=h.device))
    cotangent = torch.zeros_like(h)
    cotangent[0] = weights
    if bool(back(cotangent)[0][1:].any()):
        raise PassError(
            f"jacobians: {name} couples the samples of a batch, so that none has a Jacobian of its own: take "
            "a step that keeps them apart, or a batch of one"
        )


def name_of(function: Any) -> str:
    """What records call a step."""
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "step"


def _shown(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.shape)}"
