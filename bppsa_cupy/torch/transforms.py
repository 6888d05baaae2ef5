"""What PyTorch does with calls: it records them, maps them over an axis, and batches their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Any)
_frames: Any = torch._C._dynamo.eval_frame


def is_recorded() -> bool:
    """Whether a pass must be an operator of `torch.ops`, since what it computes otherwise is not seen."""
    return torch.compiler.is_compiling() or torch._C._is_tracing() or torch._C._len_torch_dispatch_stack() > 0


def hide_from_dynamo(function: Function) -> Function:
    """Let a function and what it calls run as they are where Dynamo breaks the graph before its call.

    It costs nothing per call, unlike torch.compiler.disable.
    """
    if hasattr(_frames, "set_code_exec_strategy"):
        skip = _frames._FrameAction.SKIP
        _frames.set_code_exec_strategy(function.__code__, _frames._FrameExecStrategy(skip, skip))
    return function


# ---- the axis that torch.vmap and batched gradients add, taken into the batch of sequences ----

#: Of tensors or results, which axis is the batch; None where there is none, as in parameters.
Axes = Sequence[int | None]


def mapped(
    function: Callable[..., Sequence[torch.Tensor]],
    size: int,
    tensors: Sequence[Any],
    dims: Axes,
    axes: Axes,
    result_axes: Axes | None,
) -> tuple[tuple[torch.Tensor, ...], tuple[int | None, ...]]:
    """The results of `function` for `size` entries along `dims` of its tensors, and where they lie in them.

    All entries in one call, as one batch, entry after entry; one call an entry where a tensor without a batch
    is mapped, or where `result_axes` is None, as results sum over the batch.
    """
    if result_axes is None or any(
        axis is None and dim is not None for axis, dim in zip(axes, dims, strict=True)
    ):
        each = [
            function(*(t if dim is None else t.select(dim, i) for t, dim in zip(tensors, dims, strict=True)))
            for i in range(size)
        ]
        stacked = tuple(map(torch.stack, zip(*each, strict=True)))
        return stacked, (0,) * len(stacked)
    merged = [
        tensor if tensor is None or axis is None else _merged(tensor, dim, axis, size)
        for tensor, dim, axis in zip(tensors, dims, axes, strict=True)
    ]
    results = zip(function(*merged), result_axes, strict=True)
    by_entry = tuple(r if axis is None else r.unflatten(axis, (size, -1)) for r, axis in results)
    return by_entry, tuple(result_axes)


def _merged(tensor: torch.Tensor, dim: int | None, axis: int, size: int) -> torch.Tensor:
    if dim is None:
        expanded = tensor.unsqueeze(axis)
        tensor = expanded.expand(*expanded.shape[:axis], size, *expanded.shape[axis + 1 :])
    else:
        tensor = tensor.movedim(dim, axis)
    return tensor.flatten(axis, axis + 1)


#: Whether gradients come from `is_grads_batched` or `jacobian(vectorize=True)`, whose axis torch.vmap's rules
#: do not see.
is_batched: Callable[[torch.Tensor], bool] = torch._C._functorch.is_legacy_batchedtensor


def over_batched(
    function: Callable[..., tuple[torch.Tensor, ...]], gradients: Sequence[torch.Tensor | None]
) -> tuple[torch.Tensor, ...]:
    """`function` of gradients, by torch.vmap where they are such."""
    if not any(gradient is not None and is_batched(gradient) for gradient in gradients):
        return function(*gradients)
    level = max(1, torch._C._vmapmode_increment_nesting() - 1)
    torch._C._vmapmode_decrement_nesting()
    dims: list[int | None] = [None] * len(gradients)
    unbatched = list(gradients)
    for place, gradient in enumerate(gradients):
        if gradient is not None and is_batched(gradient):
            dims[place], unbatched[place] = 0, torch._remove_batch_dim(gradient, level, 1, 0)
    results = torch.vmap(function, in_dims=tuple(dims))(*unbatched)
    return tuple(torch._add_batch_dim(tensor, 0, level) for tensor in results)
