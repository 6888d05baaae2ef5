"""PyTorch's modules for layers that `torch.nn` has no namesake of; importing this imports PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from bppsa_cupy.layers import Layer


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


def module_of(layer: Layer) -> nn.Module:
    """The module of a layer's name and arguments, with parameters of its own."""
    name, arguments = type(layer).__name__, layer.config()
    if name == "Residual":
        return Residual(**{branch: list(map(module_of, layers)) for branch, layers in arguments.items()})
    return PadShortcut(**arguments) if name == "PadShortcut" else getattr(nn, name)(**arguments)
