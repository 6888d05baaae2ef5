"""PyTorch's recurrent modules and ours on one input: results and gradients of both."""

from __future__ import annotations

from typing import Any

import torch

import bppsa_cupy.torch as ours

#: How far results and gradients may be apart, absolutely.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def pair(kind: str, *arguments: Any, dtype: torch.dtype = torch.float64, **options: Any) -> tuple[Any, Any]:
    """PyTorch's module and ours with its parameters."""
    theirs = getattr(torch.nn, kind)(*arguments, **options).to(dtype)
    module = getattr(ours, kind)(*arguments, **options).to(dtype)
    module.load_state_dict(theirs.state_dict())
    return theirs, module


def flat(result: Any) -> list[torch.Tensor]:
    """The tensors of a module's result: output, which may be packed, and states."""
    y, state = result
    y = y.data if isinstance(y, torch.nn.utils.rnn.PackedSequence) else y
    return [y, *(state if isinstance(state, tuple) else (state,))]


def gradients(
    module: torch.nn.Module, results: list[torch.Tensor], *inputs: torch.Tensor
) -> list[torch.Tensor]:
    """The gradients by the inputs and the module's parameters, of a loss over all results."""
    loss = sum((tensor * torch.cos(tensor + index)).sum() for index, tensor in enumerate(results))
    return list(torch.autograd.grad(loss, [*inputs, *module.parameters()]))


def assert_same(first: list[torch.Tensor], second: list[torch.Tensor]) -> None:
    """Every tensor of one list is that of the other, within the tolerance of its dtype."""
    assert len(first) == len(second)
    for index, (a, b) in enumerate(zip(first, second, strict=True)):
        assert a.shape == b.shape and a.dtype == b.dtype, index
        assert (a - b).abs().max() <= TOLERANCE[a.dtype] * max(1, float(b.detach().abs().max())), index
