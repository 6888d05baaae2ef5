"""A model's recurrent modules, and its pruned ones, swapped in place."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, TypeVar

import torch
from torch.nn.utils.parametrize import is_parametrized

from bppsa_cupy.arguments import as_flag, as_instance, as_number, is_one_of
from bppsa_cupy.errors import ArgumentError
from bppsa_cupy.torch.modules import GRU, LSTM, RNN, OverTime
from bppsa_cupy.torch.pruned import MaxPool2d, Pruned
from bppsa_cupy.torch.pruning import (
    SPARSE,
    check_compact,
    fill_up,
    find_pruned,
    make_compact,
    thin_out,
    why_dense,
)
from bppsa_cupy.torch.recurrence import Recurrence

Model = TypeVar("Model", bound=torch.nn.Module)
Kind = type[Any]

#: torch.nn's modules, and those that take their places.
PAIRS: dict[Kind, Kind] = {torch.nn.RNN: RNN, torch.nn.GRU: GRU, torch.nn.LSTM: LSTM}

#: What a subclass may define and still compute what torch.nn's class does.
HARMLESS = {"_apply", "all_weights", "extra_repr", "flatten_parameters", "reset_parameters"}
COMPUTING = {"__call__", "__getattr__", "__getattribute__"} | {
    name
    for kind in (OverTime, torch.nn.RNNBase)
    for name in vars(kind)
    if not name.startswith("__") and name not in HARMLESS
}

logger = logging.getLogger("bppsa_cupy.torch")


class ModuleReport(NamedTuple):
    """One row of `report`: a module, and whether it is converted.

    Attributes
    ----------
    name : str
        The path of the module in the model, "" for the model itself.
    kind : str
        The class of the module.
    converted : bool
        Whether the module is converted, so that it runs on the kernels of this package.
    reason : str
        Why `converted` is False, else "".

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> model = torch.nn.GRU(3, 4)
    >>> bt.report(model)[0].converted, bt.report(bt.convert(model))[0].converted
    (False, True)
    """

    name: str
    kind: str
    converted: bool
    reason: str


def convert(
    model: Model,
    *,
    sparse: str | float | None = None,
    mask_attribute: str | None = None,
    compact: bool = False,
    optimizer: torch.optim.Optimizer | None = None,
    wait: bool = False,
) -> Model:
    """Turn every torch.nn.RNN, GRU and LSTM of a model, in place, into its bppsa_cupy.torch counterpart.

    Parameters
    ----------
    model : torch.nn.Module
        The model. Its modules stay the same objects, with their parameters, parametrizations, hooks, names
        and state dicts, so an existing optimizer can still be used. If a subclass computes the same function
        as its torch.nn class, its instances are converted too, and keep their class.
    sparse : None, "auto" or float
        Which pruned Conv2d and Linear layers to convert. None converts no such layer. "auto" converts the
        layers that a fixed rule expects to be faster with only the remaining weights. For small batches, such
        layers still call the PyTorch operator. A number from 0 to 1 converts the layers whose fraction
        of zeros is at least this number. A weight is pruned if `weight_mask` of torch.nn.utils.prune masks
        it, or, without a mask, if it is 0 now. These positions change only if `weight_mask` changes. If a
        layer is converted, the MaxPool2d layers are converted too. Their results keep their bits.
    mask_attribute : str, optional
        Also convert subclasses of Conv2d and Linear that compute with ``weight * mask``, where the mask of
        zeros and ones is an attribute with this name.
    compact : bool, default False
        Whether to store only the remaining weights of converted layers. The weight becomes an array (nnz,),
        and the optimizer updates only these values. State dicts still contain the dense weight; its masked
        values stay as they are now. The mask is fixed, and torch.nn.utils.prune raises an error for such a
        layer. Convert the model before you wrap it in DistributedDataParallel.
    optimizer : torch.optim.Optimizer, optional
        An optimizer of the model, whose state is converted too. Needed only with `compact`, and only if the
        optimizer has taken a step.
    wait : bool, default False
        Whether the first call waits until its kernels are compiled. By default another process compiles the
        kernels. Until then the PyTorch operator is used, so the last bits of the first steps may differ.
        BPPSA_WAIT=1 and torch.use_deterministic_algorithms(True) have the same effect as wait=True.

    Returns
    -------
    torch.nn.Module
        The model.

    Raises
    ------
    ArgumentError
        If the model has no module to convert, an argument is invalid, a parametrization computes a pruned
        weight, a mask has values other than 0 and 1, or modules share a weight and `compact` is True. The
        model is then unchanged.
    ShapeError
        If `compact` is True, and an array of the optimizer state does not have the shape of its weight. The
        model is then unchanged.

    Notes
    -----
    Calls that the PyTorch operator computes faster, such as single steps, still use that operator (see
    docs/how-to/pytorch.md). The logger "bppsa_cupy.torch" names the modules that are converted, and those
    that are not, with the reason. `report` returns the same information.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch
    >>> bppsa_cupy.torch.convert(torch.nn.GRU(3, 4))
    bppsa_cupy.GRU(3, 4)
    """
    as_instance("convert", "model", model, torch.nn.Module, "a torch.nn.Module")
    wait, compact = as_flag("convert", "wait", wait), as_flag("convert", "compact", compact)
    if optimizer is not None:
        as_instance("convert", "optimizer", optimizer, torch.optim.Optimizer, "a torch.optim.Optimizer")
    if sparse is None and (compact or mask_attribute is not None):
        raise ArgumentError(
            "compact and mask_attribute apply only to pruned layers: also pass sparse='auto' or sparse=0.8"
        )
    share, masks = None, {}
    if sparse is not None:
        if not is_one_of(sparse, ["auto"]):
            takes = "'auto', or a share of zeros from 0 to 1, such as 0.9"
            share = as_number("convert", "sparse", sparse, lambda share: 0 <= share <= 1, takes)
        masks = find_pruned(model, share, mask_attribute)
    if compact:
        check_compact(model, masks, optimizer)
    if sparse is None:
        _check_kinds("convert", model, (*PAIRS, OverTime), "torch.nn")
    for module in list(model.modules()):
        _convert_module(module, wait)
    for module, mask in masks.items():
        kind: Any = type(module)
        is_subclass = kind not in SPARSE
        module.__class__ = SPARSE.get(kind) or _converted_subclass(kind)
        thin_out(module, mask, mask_attribute if is_subclass else None, sparse == "auto")
        if compact:
            make_compact(module, optimizer)
    for module in model.modules() if masks else ():
        if type(module) is torch.nn.MaxPool2d:
            module.__class__ = MaxPool2d
    rows = report(model) if sparse is not None else _of_recurrent(model)
    for row in rows:
        place = f"{row.name} ({row.kind})" if row.name else row.kind
        if row.converted:
            logger.info("%s runs on bppsa_cupy", place)
        else:
            logger.warning("%s is not converted: %s", place, row.reason)
    if not any(row.converted for row in rows):
        logger.warning("convert changed no module")
    return model


@contextmanager
def converting(*, wait: bool = False) -> Iterator[None]:
    """Convert every torch.nn.RNN, GRU and LSTM that becomes part of a module inside this `with` block.

    Use it for libraries that build their models themselves, for example inside `fit`.

    Parameters
    ----------
    wait : bool, default: False
        Whether the first call of a module waits until its kernels are compiled, as in `convert`.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch
    >>> with bppsa_cupy.torch.converting():
    ...     model = torch.nn.Sequential(torch.nn.GRU(3, 4))
    >>> model
    Sequential(
      (0): bppsa_cupy.GRU(3, 4)
    )
    """
    wait = as_flag("converting", "wait", wait)

    def on_registration(parent: torch.nn.Module, name: str, child: torch.nn.Module) -> None:
        if isinstance(child, torch.nn.Module):
            for module in child.modules():
                _convert_module(module, wait)

    handle = torch.nn.modules.module.register_module_module_registration_hook(on_registration)
    try:
        yield
    finally:
        handle.remove()


def _convert_module(module: torch.nn.Module, wait: bool) -> None:
    """Convert one module where it can be; store whether its first call waits."""
    if _is_convertible(module):
        module.__class__ = _converted_class(type(module), is_parametrized(module))
    if isinstance(module, OverTime):
        module.__dict__.pop("waits", None)
        if wait:
            module.waits = True


def revert(model: Model, optimizer: torch.optim.Optimizer | None = None) -> Model:
    """Replace every module of bppsa_cupy.torch by its torch.nn counterpart, in place.

    Parameters
    ----------
    model : torch.nn.Module
        The model. Masked weights become 0.
    optimizer : torch.optim.Optimizer, optional
        An optimizer of the model, whose state is converted too. Needed only for layers that were
        converted with `compact`.

    Returns
    -------
    torch.nn.Module
        The model.

    Raises
    ------
    ArgumentError
        If the model has no module of bppsa_cupy.torch.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> bt.revert(bt.GRU(3, 4))
    GRU(3, 4)
    """
    as_instance("revert", "model", model, torch.nn.Module, "a torch.nn.Module")
    if optimizer is not None:
        as_instance("revert", "optimizer", optimizer, torch.optim.Optimizer, "a torch.optim.Optimizer")
    _check_kinds("revert", model, (*PAIRS, OverTime, *SPARSE), "bppsa_cupy.torch")
    for module in list(model.modules()):
        if isinstance(module, OverTime):
            module.__dict__.pop("waits", None)
        elif isinstance(module, Pruned):
            fill_up(module, optimizer)
        elif not isinstance(module, MaxPool2d):
            continue
        module.__class__ = _torch_class(module)
    return model


def report(model: torch.nn.Module) -> list[ModuleReport]:
    """List the recurrent and pruned modules of a model, each with the reason if it is not converted.

    Parameters
    ----------
    model : torch.nn.Module
        The model, before or after `convert`.

    Returns
    -------
    list of ModuleReport
        One item per recurrent module, and per Conv2d or Linear module with weights that are 0.

    Raises
    ------
    ArgumentError
        If `model` is not a torch.nn.Module.

    Examples
    --------
    >>> import torch, bppsa_cupy.torch as bt
    >>> print(bt.report(torch.nn.LSTM(3, 4, proj_size=2))[0].reason)
    proj_size=2 is not supported
    """
    as_instance("report", "model", model, torch.nn.Module, "a torch.nn.Module")
    rows = _of_recurrent(model)
    for name, module in model.named_modules():
        reason = why_dense(module)
        if reason is not None:
            rows.append(ModuleReport(name, type(module).__name__, not reason, reason))
    return rows


def _of_recurrent(model: torch.nn.Module) -> list[ModuleReport]:
    return [
        ModuleReport(name, type(module).__name__, not reason, reason)
        for name, module in model.named_modules()
        if isinstance(module, (OverTime, Recurrence, torch.nn.RNNBase, torch.nn.RNNCellBase))
        for reason in [_obstacle(module) or ("call convert first" if _is_convertible(module) else "")]
    ]


def _obstacle(module: torch.nn.Module) -> str:
    """Why a recurrent module cannot be converted; "" if it is converted already, or can be."""
    if isinstance(module, OverTime):
        return ""
    if isinstance(module, Recurrence):
        return module.reason
    base = next((kind for kind in PAIRS if isinstance(module, kind)), None)
    if base is None:
        cell = "it does one step of a recurrence: recurrence(cell) takes a sequence"
        return cell if isinstance(module, torch.nn.RNNCellBase) else "it is not a torch.nn.RNN, GRU or LSTM"
    if module.proj_size:
        return f"proj_size={module.proj_size} is not supported"
    kinds = type(module).__mro__
    changed = {name for kind in kinds[: kinds.index(base)] for name in vars(kind)} | set(vars(module))
    names = sorted(changed & COMPUTING)
    return f"it has its own {', '.join(names)}" if names else ""


def _is_convertible(module: torch.nn.Module) -> bool:
    return isinstance(module, tuple(PAIRS)) and not isinstance(module, OverTime) and not _obstacle(module)


def _converted_class(kind: Any, parametrized: bool) -> Kind:
    """The class of ours for instances of this one."""
    if parametrized:  # PyTorch makes a class for each such module, whose properties are the parameters
        return _with_properties(kind, _converted_class(kind.__bases__[0], False))
    return PAIRS.get(kind) or _converted_subclass(kind)


def _torch_class(module: Any) -> Kind:
    """The class that a module of ours had; without one, as of a cell, its own."""
    kind = type(module)
    if is_parametrized(module):
        base = kind.__bases__[0]
        return _with_properties(kind, vars(base)["torch_class"]) if "torch_class" in vars(base) else kind
    return vars(kind).get("torch_class") or kind


def _with_properties(kind: Kind, base: Kind) -> Kind:
    """A class with this one's attributes and another base."""
    attributes = dict(vars(kind))
    for name in ("__dict__", "__weakref__"):
        attributes.pop(name, None)
    return type(kind.__name__, (base,), attributes)


@cache
def _converted_subclass(kind: Any) -> Kind:
    """A subclass of torch.nn's class, on ours. The forward pass of a pruned layer is ours, whatever its
    subclass defines."""
    ours = next(ours for theirs, ours in {**PAIRS, **SPARSE}.items() if issubclass(kind, theirs))
    bases = (ours, kind) if issubclass(ours, Pruned) else (kind, ours)
    names = ("__doc__", "__module__", "__qualname__")
    attributes = {name: getattr(kind, name) for name in names}
    attributes |= {"torch_class": kind, "__reduce_ex__": _reduce}
    return type(kind.__name__, bases, attributes)


def _reduce(module: Any, protocol: Any) -> Any:
    """What pickle and copy take of an instance of a converted subclass, which has no name to be found by."""
    make, arguments, *rest = module.torch_class.__reduce_ex__(module, protocol)
    is_usual = make.__name__ == "__newobj__"
    return (_new, (module.torch_class,), *rest) if is_usual else (make, arguments, *rest)


def _new(kind: Any) -> torch.nn.Module:
    converted: Any = _converted_subclass(kind)
    return converted.__new__(converted)


def _check_kinds(owner: str, model: torch.nn.Module, kinds: tuple[Kind, ...], package: str) -> None:
    """Raise ArgumentError where a model has no module of these kinds."""
    if any(isinstance(module, kinds) for module in model.modules()):
        return
    counts = Counter(type(module).__name__ for module in model.modules())
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    raise ArgumentError(
        f"{owner} needs a model with a {package}.RNN, GRU or LSTM, but got {listed}: pass the model that "
        "contains it"
    )
