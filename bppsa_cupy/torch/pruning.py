"""Which of a model's modules are pruned, and how they are made ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.prune import BasePruningMethod

from bppsa_cupy.devices import rules
from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.torch.pruned import (
    INDEX,
    KEPT,
    MASKED,
    Pruned,
    PrunedConv2d,
    PrunedLinear,
    mask_of,
    spread,
    weight_name,
)

#: torch.nn's modules, and those that take their places where they are pruned.
SPARSE: dict[type[torch.nn.Module], type[Pruned]] = {
    torch.nn.Conv2d: PrunedConv2d,
    torch.nn.Linear: PrunedLinear,
}


def find_pruned(
    model: torch.nn.Module, share: float | None, attribute: str | None
) -> dict[torch.nn.Module, torch.Tensor | None]:
    """The modules with at least this share of zeros, or with None those that a fixed rule takes by
    lists; each with the mask that follows from its zeros, or None where it has a `weight_mask`, or a mask
    under the name `attribute`.

    Raises ArgumentError for a weight that something else than a mask computes, and for a mask with values
    other than 0 and 1.
    """
    pruned: dict[torch.nn.Module, torch.Tensor | None] = {}
    for name, module in model.named_modules():
        kind = next((sparse_kind for sparse_kind in SPARSE if isinstance(module, sparse_kind)), None)
        if kind is None or isinstance(module, Pruned):
            continue
        label = f"{name} ({type(module).__name__})" if name else type(module).__name__
        weight: Any = module.weight
        if is_parametrized(module, "weight"):
            if _is_sparse(kind, weight.detach() != 0, share):
                raise ArgumentError(
                    f"{label} has a parametrization of weight that is not a mask of torch.nn.utils.prune: "
                    "call torch.nn.utils.parametrize.remove_parametrizations(module, 'weight') first"
                )
            continue
        has_mask = attribute is not None and isinstance(getattr(module, attribute, None), torch.Tensor)
        is_taken = type(module) is kind or has_mask
        if not is_taken or getattr(module, "padding_mode", "zeros") != "zeros":
            continue
        mask: Any = getattr(module, str(attribute)) if has_mask else module._buffers.get("weight_mask")
        if has_mask or (mask is not None and "weight_orig" in module._parameters):
            if mask.shape != weight.shape or mask.requires_grad or not ((mask == 0) | (mask == 1)).all():
                raise ArgumentError(
                    f"{label} has a {attribute} that is not a mask of its weight: pass as mask_attribute the "
                    "name of a tensor of zeros and ones with the weight's shape and without gradients"
                    if has_mask
                    else f"{label} has a weight_mask with values other than 0 and 1: multiply them into the "
                    "weight with torch.nn.utils.prune.remove(module, 'weight')"
                )
            if _is_sparse(kind, mask != 0, share):
                pruned[module] = None
            continue
        nonzero = weight.detach() != 0
        if not _is_sparse(kind, nonzero, share):
            continue
        if module._parameters.get("weight") is None:
            raise ArgumentError(
                f"{label} computes its weight in a hook that is not a mask of torch.nn.utils.prune: remove "
                "the hook first, for example with torch.nn.utils.remove_weight_norm(module)"
            )
        pruned[module] = nonzero
    return pruned


def why_dense(module: torch.nn.Module) -> str | None:
    """Why a module with weights that are 0 computes with all of them; "" where it does not; None for other
    modules."""
    if isinstance(module, Pruned):
        return ""
    weight = getattr(module, "weight", None)
    if not isinstance(module, tuple(SPARSE)) or not isinstance(weight, torch.Tensor) or weight.is_meta:
        return None
    if isinstance(weight, torch.nn.parameter.UninitializedParameter) or (weight != 0).all():
        return None
    if type(module) not in SPARSE:
        return "it is of a subclass, or has a parametrization"
    if getattr(module, "padding_mode", "zeros") != "zeros":
        return f"padding_mode={module.padding_mode!r} is not supported"
    return f"{float((weight == 0).float().mean()):.1%} of its weights are 0"


def _is_sparse(kind: type[torch.nn.Module], mask: torch.Tensor, share: float | None) -> bool:
    weights, count = mask.numel(), int(mask.sum())
    if share is not None:
        return weights - count >= share * weights
    positions = 1 if kind is torch.nn.Linear else 2
    return rules.listed_cost("host" if mask.is_cpu else "cuda", positions) * count < weights


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


class FrozenMask(DeferredMask):
    """The hook of a compact module, by which torch.nn.utils.prune is refused before it changes anything."""

    def __init__(self, method: Any) -> None:
        self.method = method

    @property
    def _tensor_name(self) -> str:  # type: ignore[override]
        raise ArgumentError(
            "the mask of a compact layer cannot change: call bppsa_cupy.torch.revert(model, "
            "optimizer=optimizer), prune the model, and convert it again"
        )


def thin_out(
    module: torch.nn.Module, mask: torch.Tensor | None, attribute: str | None, is_automatic: bool
) -> None:
    """Let a module that has become Pruned compute with its mask, or with this one, (weight's shape) bool.

    is_automatic  whether a call uses the list of kept weights only if a rule expects it to be faster
    """
    vars(module)["is_automatic"] = is_automatic
    if attribute is not None:
        module.mask_attribute = attribute  # type: ignore[assignment]
    if mask is not None:
        module.register_buffer(KEPT, mask, persistent=False)
    hooks: Any = module._forward_pre_hooks
    for key, hook in hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == "weight":
            hooks[key] = DeferredMask(hook)
            vars(module).pop("weight", None)


def check_compact(model: torch.nn.Module, modules: Iterable[torch.nn.Module], optimizer: Any) -> None:
    """Raise ArgumentError for a weight that several modules share, and ShapeError for optimizer state of
    another shape than its weight."""
    users = Counter(id(p) for module in model.modules() for p in module._parameters.values())
    for module in modules:
        weight: Any = module._parameters[weight_name(module)]
        if users[id(weight)] > 1:
            raise ArgumentError(
                f"several modules share the weight of {type(module).__name__} {tuple(weight.shape)}: convert "
                "without compact=True"
            )
        for key, value in _state_of(optimizer, weight).items():
            if isinstance(value, torch.Tensor) and value.dim() and value.shape != weight.shape:
                raise ShapeError(
                    f"the optimizer's {key} has shape {tuple(value.shape)}, but the weight has shape "
                    f"{tuple(weight.shape)}: with compact=True, use an elementwise optimizer, such as SGD "
                    "or Adam"
                )


def make_compact(module: torch.nn.Module, optimizer: Any) -> None:
    """Let the weight of a module, its gradient and its optimizer state be the kept values alone."""
    weight: Any = module._parameters[weight_name(module)]
    index = (mask_of(module) != 0).reshape(-1).nonzero().reshape(-1)
    masked = weight.detach().clone() if KEPT not in module._buffers else None
    _change(weight, optimizer, lambda values: values.reshape(-1)[index])
    module.register_buffer(INDEX, index, persistent=False)
    module.register_buffer(MASKED, masked, persistent=False)
    hooks: Any = module._forward_pre_hooks
    for key, hook in hooks.items():
        if isinstance(hook, DeferredMask):
            hooks[key] = FrozenMask(hook)
            return
    module.register_forward_pre_hook(FrozenMask(None))


def fill_up(module: Pruned, optimizer: Any) -> None:
    """Give a module that is about to be torch.nn's again its dense weight and its hooks."""
    hooks: Any = module._forward_pre_hooks
    if module.is_compact:
        name = weight_name(module)
        weight: Any = module._parameters[name]
        dense = spread(module, weight.detach(), module._buffers[MASKED])
        _change(weight, optimizer, lambda values: spread(module, values))
        weight.data = dense
        for buffer in (INDEX, MASKED):
            delattr(module, buffer)
        (key,) = (key for key, hook in hooks.items() if isinstance(hook, FrozenMask))
        hooks[key] = hooks[key].method
        if hooks[key] is None:
            del hooks[key]
    for key, hook in hooks.items():
        if isinstance(hook, DeferredMask):
            hooks[key] = hook.method
            hook.method(module, None)
    for name in ("mask_attribute", "is_automatic"):
        vars(module).pop(name, None)
    mask = module._buffers.get(KEPT)
    if mask is not None:
        delattr(module, KEPT)
        with torch.no_grad():
            module.weight.masked_fill_(~mask, 0)


def _state_of(optimizer: Any, weight: torch.Tensor) -> dict[str, Any]:
    return optimizer.state.get(weight, {}) if optimizer is not None else {}


def _change(weight: Any, optimizer: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Replace the values of a parameter, of its gradient and of its optimizer state; it stays the object."""
    shape, gradient, state = weight.shape, weight.grad, _state_of(optimizer, weight)
    for key, value in state.items():
        if isinstance(value, torch.Tensor) and value.shape == shape:
            state[key] = change(value)
    values, weight.grad = change(weight.detach()), None
    # Another dtype makes a graph that is still alive let go of the parameter, and of its shape.
    weight.data = values.new_empty(0, dtype=torch.bfloat16)
    weight.data = values
    if gradient is not None:
        weight.grad = change(gradient)
