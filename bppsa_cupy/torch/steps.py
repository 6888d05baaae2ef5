"""The Jacobians of a recurrence that is written in PyTorch, by autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    is_tuple = isinstance(h0, (tuple, list))
    matrices = np.empty((len(x), batch, total, total), str(dtype).removeprefix("torch."))
    before = [state.detach().clone() for state in states]

    def call(x_t: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = tuple(state.clone() for state in before)  # a step may write into its arguments
        return _checked_states(name, step(x_t.clone(), h if is_tuple else h[0]), states)

    with torch.inference_mode(False), torch.enable_grad():
        for t, x_t in enumerate(x.detach()):
            before = [state.detach().requires_grad_() for state in before]
            after = call(x_t)
            try:
                if not t and batch > 1:
                    _check_samples(name, after, before)
                matrices[t] = _matrices(after, before, batch).cpu().numpy()
            except RuntimeError as cause:
                if isinstance(cause, PassError):
                    raise
                raise PassError(
                    f"jacobians: PyTorch has no gradient of {name}: {str(cause).splitlines()[0]}"
                ) from cause
            before = list(after)
    return step_records(name, matrices)


def _matrices(after: Sequence[torch.Tensor], before: Sequence[torch.Tensor], batch: int) -> torch.Tensor:
    """The transposed Jacobians (B, S, S) of a step's result by the state before it."""
    joined = torch.cat(tuple(after), -1)
    total = joined.shape[-1]
    if not joined.requires_grad:
        return joined.new_zeros(batch, total, total)
    basis = torch.eye(total, dtype=joined.dtype, device=joined.device)
    basis = basis[:, None].expand(total, batch, total) if joined.dim() == 2 else basis

    def back(by_output: torch.Tensor, **options: Any) -> torch.Tensor:
        return torch.cat(_gradients(joined, before, by_output, **options), -1)

    try:
        rows = back(basis, is_grads_batched=True)
    except RuntimeError:  # an operation whose backward pass torch.vmap does not take
        rows = torch.stack([back(by_output) for by_output in basis])
    return rows.reshape(total, batch, total).permute(1, 2, 0)


def _gradients(
    result: torch.Tensor, before: Sequence[torch.Tensor], by_output: torch.Tensor, **options: Any
) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(
        result, before, by_output, retain_graph=True, allow_unused=True, materialize_grads=True, **options
    )


def _checked_states(name: str, result: Any, states: Any) -> tuple[torch.Tensor, ...]:
    """The state after a step. Raises ShapeError unless it is of the shapes before it."""
    after = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    shapes = [tuple(state.shape) for state in states]
    if [tuple(part.shape) if isinstance(part, torch.Tensor) else None for part in after] != shapes:
        told = ", ".join(_shown(p) if isinstance(p, torch.Tensor) else type(p).__name__ for p in after)
        raise ShapeError(
            f"jacobians: {name}(x_t, h) gave {told} for h of {', '.join(map(_shown, states))}: a step "
            "gives the next state, of the same shapes"
        )
    return after


def _check_samples(name: str, after: Sequence[torch.Tensor], before: Sequence[torch.Tensor]) -> None:
    """Raise PassError where the state of one sample follows the state of another before it."""
    joined = torch.cat(tuple(after), -1)
    if not joined.requires_grad:
        return
    cotangent = torch.zeros_like(joined)
    cotangent[0] = torch.cos(torch.arange(joined.shape[1], dtype=joined.dtype, device=joined.device))
    if any(bool(part[1:].any()) for part in _gradients(joined, before, cotangent)):
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
