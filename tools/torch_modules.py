"""Networks in PyTorch, with the same parameters; importing this imports PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from bppsa_cupy.layers import Dropout, Layer
from bppsa_cupy.layers.base import Context
from bppsa_cupy.network.passes import draw
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools.benchmarks.harness import Step
from bppsa_cupy.tools.machine import torch_device


class Residual(nn.Module):
    """body(x) + shortcut(x), each a sequence of modules; a shortcut of none is the identity."""

    def __init__(self, body: Sequence[nn.Module], shortcut: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        self.body, self.shortcut = nn.Sequential(*body), nn.Sequential(*shortcut)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) + self.shortcut(x)


class PadShortcut(nn.Module):
    """Option A of He et al.: every stride-th pixel, zeros for the channels that are new."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.channels, self.stride = channels, stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        more = self.channels - x.shape[1]
        taken = x[:, :, :: self.stride, :: self.stride]
        return nn.functional.pad(taken, (0, 0, 0, 0, more // 2, more - more // 2))


class Scaled(nn.Module):
    """x times a given array, which is no part of the state."""

    def __init__(self, factors: torch.Tensor) -> None:
        super().__init__()
        self.factors: torch.Tensor
        self.register_buffer("factors", factors, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x * factors"""
        return x * self.factors


def module_of(layer: Layer) -> nn.Module:
    """The module of a layer's name and arguments, with parameters of its own."""
    name, arguments = type(layer).__name__, layer.config()
    if name == "Residual":
        return Residual(**{branch: list(map(module_of, layers)) for branch, layers in arguments.items()})
    if name == "Pad2d":
        kinds = {"zeros": nn.ZeroPad2d, "circular": nn.CircularPad2d, "reflect": nn.ReflectionPad2d}
        return kinds[arguments["mode"]](arguments["padding"])
    return PadShortcut(**arguments) if name == "PadShortcut" else getattr(nn, name)(**arguments)


def fix_dropout(model: nn.Sequential, network: Sequential, batch_size: int) -> None:
    """Let each Dropout of the model, outside of residual blocks, drop what the network's drops in its next
    training pass. It draws no random numbers then, a few of a thousand parts of its work."""
    device, dtype = network.device, network.dtype
    for index, layer in enumerate(network.layers):
        if isinstance(layer, Dropout):
            shape = network.shapes[index]
            where = draw(network.random_state, index)
            ctx = Context(device, dtype, {}, {}, shape, training=True, draw=where)
            mask = layer.forward(ctx, device.asarray(np.ones((batch_size, *shape), dtype)))
            factors = torch.tensor(np.array(device.to_host(mask)))
            model[index] = Scaled(factors).to(next(model.parameters()).device)


class LastState(nn.ModuleList):
    """A recurrent layer, and a linear layer of its last state."""

    def forward(self, x: Any) -> torch.Tensor:
        """The scores, (B, classes)."""
        state = self[0](x)[1]
        scores: torch.Tensor = self[1]((state[0] if isinstance(state, tuple) else state)[-1])
        return scores


def torch_network(network: Sequential) -> Any:
    """The network in PyTorch, with copies of its parameters, on the same device.

    Layers' names, arguments and parameters are PyTorch's. A recurrent layer must be the first of two, and the
    second a linear layer of its last state.
    """
    parameters = {name: torch.tensor(array) for name, array in network.state_dict().items()}
    model: Any
    if network.architecture.recurrent:
        classes, hidden = parameters["1.weight"].shape
        cell = getattr(nn, type(network.layers[0]).__name__)
        recurrent = cell(network.input_shape[1], hidden, batch_first=True)
        model = LastState([recurrent, nn.Linear(hidden, classes)])
    else:
        model = nn.Sequential(*map(module_of, network.layers))
    model.to(getattr(torch, network.dtype.name)).load_state_dict(parameters)
    return model.to(torch_device(network.device))


def to_numpy(tensor: Any) -> Any:
    """A tensor's values on the host."""
    return tensor.detach().cpu().numpy()


def torch_passes(
    model: Any,
    inputs: Any,
    labels: Any,
    device: Any,
    *,
    optimizer: Any = None,
    masks: Mapping[str, np.ndarray] | None = None,
    **more: Any,
) -> Step:
    """A model's forward pass with the loss, its backward pass, and the optimizer's step where there is one.
    Gradients of weights that `masks` prune become 0. The result has the loss and all gradients."""
    where, results = torch_device(device), dict[str, Any]()
    x, y = (a if torch.is_tensor(a) else torch.tensor(a, device=where) for a in (inputs, labels))
    named = dict(model.named_parameters())
    masked: Any = [named[name] for name in masks or ()]
    factors: Any = [torch.tensor(m, dtype=x.dtype, device=where) for m in (masks or {}).values()]

    def forward() -> None:
        results["loss"] = nn.functional.cross_entropy(model(x), y)

    def backward() -> None:
        for parameter in named.values():
            parameter.grad = None
        results["loss"].backward()
        if masked:
            torch._foreach_mul_([parameter.grad for parameter in masked], factors)

    def result() -> dict[str, np.ndarray]:
        return {"loss": to_numpy(results["loss"]), **{name: to_numpy(p.grad) for name, p in named.items()}}

    parts: dict[str, Callable[[], object]] = {"forward": forward, "backward": backward}
    if optimizer is not None:
        parts["optimizer"] = optimizer.step
    return Step(parts, result, device, pool_bytes=lambda: int(torch.cuda.max_memory_reserved()), **more)
