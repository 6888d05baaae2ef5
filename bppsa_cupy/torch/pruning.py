"""Which of a model's modules are pruned, and how they are made ours."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.prune import BasePruningMethod

from bppsa_cupy.devices import rules
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.torch.pruned import KEPT, Pruned, PrunedConv2d, PrunedLinear

#: torch.nn's modules, and those that take their places where they are pruned.
SPARSE: dict[type[torch.nn.Module], type[Pruned]] = {
    torch.nn.Conv2d: PrunedConv2d,
    torch.nn.Linear: PrunedLinear,
}


def find_pruned(model: torch.nn.Module, share: float | None) -> dict[torch.nn.Module, torch.Tensor | None]:
    """The modules with at least this share of zeros, or with None those that a fixed rule takes by
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


def why_dense(module: torch.nn.Module) -> str | None:
    """Why a module with weights that are 0 computes with all of them; "" where it does not; None for other
    modules."""
    if isinstance(module, Pruned):
        return ""
    weight = getattr(module, "weight", None)
    if not isinstance(module, tuple(SPARSE)) or not isinstance(weight, torch.Tensor) or weight.is_meta:
        return None
    if isinstance(weight, torch.nn.parameter.UninitializedParameter) or bool((weight != 0).all()):
        return None
    if type(module) not in SPARSE:
        return "it is of a subclass, or has a parametrization"
    if getattr(module, "padding_mode", "zeros") != "zeros":
        return f"padding_mode={module.padding_mode!r} is not supported"
    return f"{float((weight == 0).float().mean()):.1%} of its weights are 0"


def _is_sparse(kind: type[torch.nn.Module], kept: torch.Tensor, share: float | None) -> bool:
    weights, count = kept.numel(), int(kept.sum())
    if share is not None:
        return weights - count >= share * weights
    positions = 1 if kind is torch.nn.Linear else 2
    return rules.listed_cost("host" if kept.is_cpu else "cuda", positions) * count < weights


class DeferredMask(BasePruningMethod):
    """The hook of torch.nn.utils.prune in a converted module, whose passes read mask and weight themselves.
    Their product is computed where `module.weight` is read."""

    def __init__(self, method: Any) -> None:
        self.method, self._tensor_name, self.PRUNING_TYPE = method, "weight", method.PRUNING_TYPE

    def __call__(self, module: torch.nn.Module, inputs: Any) -> None:
        pass

    def compute_mask(self, t: torch.Tensor, default_mask: torch.Tensor) -> torch.Tensor:
        return self.method.compute_mask(t, default_mask)

    def remove(self, module: torch.nn.Module) -> None:
        self.method(module, None)
        self.method.remove(module)


def thin_out(module: torch.nn.Module, mask: torch.Tensor | None) -> None:
    """Let a module go by its mask, or by this one, (weight's shape) bool."""
    module.__class__ = next(ours for theirs, ours in SPARSE.items() if type(module) is theirs)
    if mask is not None:
        module.register_buffer(KEPT, mask, persistent=False)
    hooks: Any = module._forward_pre_hooks
    for key, hook in hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == "weight":
            hooks[key] = DeferredMask(hook)
            vars(module).pop("weight", None)


def fill_up(module: Pruned) -> None:
    """Let a module be torch.nn's again."""
    hooks: Any = module._forward_pre_hooks
    for key, hook in hooks.items():
        if isinstance(hook, DeferredMask):
            hooks[key] = hook.method
            hook.method(module, None)
    module.__class__ = next(theirs for theirs, ours in SPARSE.items() if type(module) is ours)  # type: ignore[assignment]
    mask = module._buffers.pop(KEPT, None)
    if mask is not None:
        module._non_persistent_buffers_set.discard(KEPT)
        weight: Any = module.weight
        with torch.no_grad():
            weight.masked_fill_(~mask, 0)
