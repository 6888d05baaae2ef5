"""Residual networks for CIFAR (He et al. 2016, section 4.2): depth 6 n + 2, shortcuts of option A."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import (
    AvgPool2d,
    BatchNorm2d,
    Conv2d,
    Flatten,
    Layer,
    Linear,
    PadShortcut,
    ReLU,
    Residual,
)
from bppsa_cupy.models.initial import he_normal
from bppsa_cupy.network import Sequential

#: Channels of the three stages; the second and the third halve height and width.
CHANNELS = (16, 32, 64)


def resnet(
    depth: int,
    input_shape: tuple[int, ...] = (3, 32, 32),
    classes: int = 10,
    seed: int = 0,
    **options: Any,
) -> Sequential:
    """A 3×3 convolution, three stages of n blocks of two, the mean over each channel, and one linear layer;
    `options` are Sequential's. He's initial values.

    depth  6 n + 2, n >= 1

    Raises ShapeError for another depth, and for input that is no image.
    """
    if depth < 8 or depth % 6 != 2:
        raise ShapeError(f"resnet got depth={depth}: it takes 6 n + 2, as 20, 56 or 110")
    if len(input_shape) != 3:
        raise ShapeError(f"resnet got input {input_shape}: it takes (C, H, W)")
    before, height, width = input_shape
    layers: list[Layer] = [*_convolution(before, CHANNELS[0], 1), ReLU()]
    before = CHANNELS[0]
    for channels in CHANNELS:
        for _ in range((depth - 2) // 6):
            stride = 1 if channels == before else 2
            body = [*_convolution(before, channels, stride), ReLU(), *_convolution(channels, channels, 1)]
            layers += [Residual(body, () if stride == 1 else [PadShortcut(channels, stride)]), ReLU()]
            before = channels
    sides = (-(-height // 4), -(-width // 4))
    layers += [AvgPool2d(sides), Flatten(), Linear(before, classes)]
    return he_normal(Sequential(layers, input_shape=input_shape, seed=seed, **options), seed)


def _convolution(before: int, channels: int, stride: int) -> list[Layer]:
    return [Conv2d(before, channels, 3, stride, 1, bias=False), BatchNorm2d(channels)]


def of_depth(depth: int) -> Callable[..., Sequential]:
    """The factory of one depth: `resnet` without it."""

    def factory(input_shape: tuple[int, ...] = (3, 32, 32), classes: int = 10, **options: Any) -> Sequential:
        return resnet(depth, input_shape, classes, **options)

    factory.__name__ = f"resnet{depth}"
    factory.__doc__ = f"ResNet-{depth}: see `resnet`."
    return factory
