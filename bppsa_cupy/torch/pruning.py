"""Which of a model's modules are pruned, and how they are made ours."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils.parametrize import is_parametrized

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.processors.models import estimates
from bppsa_cupy.torch.pruned import KEPT, Pruned, PrunedConv2d, PrunedLinear

#: torch.nn's modules, and those that take their places where they are pruned.
SPARSE: dict[type[torch.nn.Module], type[Pruned]] = {
    torch.nn.Conv2d: PrunedConv2d,
    torch.nn.Linear: PrunedLinear,
}


def find_pruned(model: torch.nn.Module, share: float | None) -> dict[torch.nn.Module, torch.Tensor | None]:
    """The modules with at least this share of zeros, or with None those that are predicted to be quicker by
    lists; each with the mask that follows from its zeros, or None where it has a `weight_mask`.

    Raises ShapeError for a weight that is computed by something else than a mask, and for a mask of other
    values than 0 and 1, naming the module and the cure.
    """
    found: dict[torch.nn.Module, torch.Tensor | None] = {}
    for name, module in model.named_modules():
        kind = next((own for own in SPARSE if isinstance(module, own)), None)
        if kind is None or isinstance(module, Pruned):
            continue
        told = f"{name} ({type(module).__name__})" if name else type(module).__name__
        weight: Any = module.weight
        if is_parametrized(module, "weight"):
            if _is_sparse(kind, weight.detach() != 0, share):
                raise ShapeError(
                    f"{told} has a parametrization of weight that is no mask of torch.nn.utils.prune: take "
                    "torch.nn.utils.parametrize.remove_parametrizations(module, 'weight') first"
                )
            continue
        if type(module) is not kind or getattr(module, "padding_mode", "zeros") != "zeros":
            continue
        mask = module._buffers.get("weight_mask")
        if mask is not None and "weight_orig" in module._parameters:
            if not ((mask == 0) | (mask == 1)).all():
                raise ShapeError(
                    f"{told} has a weight_mask of other values than 0 and 1: "
                    "torch.nn.utils.prune.remove(module, 'weight') makes them part of the weight"
                )
            if _is_sparse(kind, mask != 0, share):
                found[module] = None
            continue
        kept = weight.detach() != 0
        if not _is_sparse(kind, kept, share):
            continue
        if module._parameters.get("weight") is None:
            raise ShapeError(
                f"{told} computes its weight in a hook that is no mask of torch.nn.utils.prune: take the "
                "hook away first, as torch.nn.utils.remove_weight_norm(module) does"
            )
        found[module] = kept
    return found


def _is_sparse(kind: type[torch.nn.Module], kept: torch.Tensor, share: float | None) -> bool:
    weights, count = kept.numel(), int(kept.sum())
    if share is not None:
        return weights - count >= share * weights
    of_one, of_more = estimates("host" if kept.is_cpu else "cuda").listed
    return (of_one if kind is torch.nn.Linear else of_more) * count < weights


def thin_out(module: torch.nn.Module, mask: torch.Tensor | None) -> None:
    """Let a module go by its mask, or by this one, (weight's shape) bool."""
    module.__class__ = next(ours for theirs, ours in SPARSE.items() if type(module) is theirs)
    if mask is not None:
        module.register_buffer(KEPT, mask, persistent=False)


def fill_up(module: Pruned) -> None:
    """Let a module be torch.nn's again."""
    module.__class__ = next(theirs for theirs, ours in SPARSE.items() if type(module) is ours)  # type: ignore[assignment]
    mask = module._buffers.pop(KEPT, None)
    if mask is not None:
        module._non_persistent_buffers_set.discard(KEPT)
        weight: Any = module.weight
        with torch.no_grad():
            weight.masked_fill_(~mask, 0)
