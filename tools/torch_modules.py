"""PyTorch's modules for layers that `torch.nn` has no namesake of; importing this imports PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from bppsa_cupy.layers import Dropout, Layer
from bppsa_cupy.layers.base import Context
from bppsa_cupy.network.forward import draw
from bppsa_cupy.network.sequential import Sequential


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
    return PadShortcut(**arguments) if name == "PadShortcut" else getattr(nn, name)(**arguments)


def fix_dropout(model: nn.Sequential, network: Sequential, batch_size: int) -> None:
    """Let each Dropout of the model, outside of residual blocks, drop what the network's drops in its next
    training pass. It draws no random numbers then, a few of a thousand parts of its work."""
    device, dtype = network.device, network.dtype
    for index, layer in enumerate(network.layers):
        if isinstance(layer, Dropout):
            shape = network.shapes[index]
            where = draw(network.random_state, index)
            ctx = Context(device, dtype, {}, {}, {}, shape, training=True, draw=where)
            kept = layer.forward(ctx, device.asarray(np.ones((batch_size, *shape), dtype)))
            factors = torch.tensor(np.array(device.to_host(kept)))
            model[index] = Scaled(factors).to(next(model.parameters()).device)
