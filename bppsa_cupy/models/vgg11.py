"""VGG-11 (Simonyan and Zisserman 2015) in its CIFAR form: eight 3×3 convolutions, one linear layer."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Conv2d, Flatten, Layer, Linear, MaxPool2d, ReLU
from bppsa_cupy.network import Sequential

#: Output channels of each convolution; "pool" halves height and width.
CONFIGURATION = (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool")


def vgg11(input_shape: tuple[int, ...] = (3, 32, 32), classes: int = 10, **options: Any) -> Sequential:
    """Configuration A without dropout; `options` are Sequential's. Raises ShapeError below 32×32."""
    if len(input_shape) != 3 or min(input_shape[1:]) < 32:
        raise ShapeError(f"vgg11 got input {input_shape}: it takes (C, H, W) with H and W of at least 32")
    channels, height, width = input_shape
    layers: list[Layer] = []
    for step in CONFIGURATION:
        if isinstance(step, int):
            layers += [Conv2d(channels, step, 3, padding=1), ReLU()]
            channels = step
        else:
            layers.append(MaxPool2d(2))
    layers += [Flatten(), Linear(channels * (height // 32) * (width // 32), classes)]
    return Sequential(layers, input_shape=input_shape, **options)
