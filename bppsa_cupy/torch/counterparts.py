"""The engine's layers of PyTorch's modules."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn.utils import parametrize

from bppsa_cupy import layers
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Layer
from bppsa_cupy.torch import checks
from bppsa_cupy.torch.engine_layer import engine_layer_of
from bppsa_cupy.torch.modules import OverTime
from bppsa_cupy.torch.pruned import Pruned, mask_of

#: Layers whose name and arguments are those of a module of torch.nn, beside the recurrent ones, and RMSNorm,
#: which has another eps by default.
SAME = tuple(
    kind
    for name, kind in layers.LAYERS.items()
    if hasattr(torch.nn, name) and not issubclass(kind, (layers.RMSNorm, layers.Recurrent))
)
MADE: dict[type[torch.nn.Module], Callable[..., Layer]] = {
    getattr(torch.nn, kind.__name__): kind for kind in SAME
} | {
    torch.nn.ZeroPad2d: layers.Pad2d,
    torch.nn.CircularPad2d: partial(layers.Pad2d, mode="circular"),
    torch.nn.ReflectionPad2d: partial(layers.Pad2d, mode="reflect"),
}


class Counterpart(NamedTuple):
    """The engine's layer of a module, and what a pass of it takes, by the layer's names."""

    layer: Layer
    parameters: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]


def is_recurrent(module: torch.nn.Module) -> bool:
    """Whether it is torch.nn's RNN, GRU or LSTM, or a recurrent module of ours."""
    return isinstance(module, OverTime) or kind_of(module) in (torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM)


def kind_of(module: torch.nn.Module) -> type[torch.nn.Module]:
    """The module's class; of a parametrized or pruned one that which it had before."""
    if isinstance(module, Pruned):
        return next(kind for kind in type(module).__mro__ if kind in MADE)
    return type(module).__mro__[1] if parametrize.is_parametrized(module) else type(module)


def recurrent_counterpart(module: Any) -> Counterpart:
    """That of a recurrent module. Raises ShapeError for proj_size."""
    checks.check_arguments(module)
    engine = engine_layer_of(
        module.mode, module.input_size, module.hidden_size, module.num_layers, module.bias,
        module.batch_first, module.bidirectional,
    )  # fmt: skip
    given = {name: getattr(module, name) for name in module._flat_weights_names}
    return Counterpart(engine.layer, given, {})


def counterpart(module: Any) -> Counterpart | None:
    """That of another module; None where the engine has none of its kind, or none of its arguments."""
    make = MADE.get(kind_of(module))
    if make is None:
        return None
    options = {
        name: getattr(module, name) for name in inspect.signature(make).parameters if hasattr(module, name)
    }
    if "bias" in options:
        options["bias"] = options["bias"] is not None
    mask = mask_of(module)
    if mask is not None:
        options["mask"] = mask.detach().cpu().numpy()
    try:
        layer = make(**options)
    except ShapeError:
        return None
    parameters = {name: getattr(module, name) for name in layer.parameter_shapes()}
    if mask is not None:
        parameters["weight"] = torch.where(mask != 0, parameters["weight"], 0)
    buffers = {name: getattr(module, name) for name in layer.initial_buffers()}
    return Counterpart(layer, parameters, buffers)
