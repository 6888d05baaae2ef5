"""VGG-16 (Simonyan and Zisserman 2015) in its CIFAR form: batch normalisation, and dropout between linear
layers."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import BatchNorm2d, Conv2d, Dropout, Flatten, Layer, Linear, MaxPool2d, ReLU
from bppsa_cupy.models.initial import he_normal
from bppsa_cupy.network import Sequential

#: Output channels of each convolution, five groups, each before a pooling that halves height and width.
GROUPS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16(
    input_shape: tuple[int, ...] = (3, 32, 32), classes: int = 10, seed: int = 0, **options: Any
) -> Sequential:
    """Configuration D: thirteen 3×3 convolutions, each with batch normalisation, and three linear layers of
    512, 512 and `classes`, the first two after Dropout; He's initial values. `options` are Sequential's.

    Raises ShapeError below 32×32.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < 32:
        raise ShapeError(f"vgg16 got input {input_shape}: it takes (C, H, W) with H and W of at least 32")
    before, height, width = input_shape
    layers: list[Layer] = []
    for group in GROUPS:
        for channels in group:
            layers += [Conv2d(before, channels, 3, padding=1), BatchNorm2d(channels), ReLU()]
            before = channels
        layers.append(MaxPool2d(2))
    layers.append(Flatten())
    features = before * (height // 32) * (width // 32)
    for inputs in (features, 512):
        layers += [Dropout(), Linear(inputs, 512), ReLU()]
    layers.append(Linear(512, classes))
    return he_normal(Sequential(layers, input_shape=input_shape, seed=seed, **options), seed)
