"""AlexNet (Krizhevsky 2014): five convolutions, three linear layers, Dropout, in torchvision's order."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Conv2d, Dropout, Flatten, Layer, Linear, MaxPool2d, ReLU
from bppsa_cupy.network import Sequential

#: Sides from which images get the form for ImageNet; below it, pooling would leave nothing.
IMAGENET_SIDE = 63


def alexnet(
    input_shape: tuple[int, ...] = (3, 32, 32), classes: int = 10, dropout: float = 0.5, **options: Any
) -> Sequential:
    """AlexNet for the size of the images; `options` are Sequential's.

    From 63×63 on the layers are those of torchvision's `alexnet`, without its averaging to 6×6, which does
    nothing to images of 224×224: `net.load_state_dict(dict(zip(net.parameters, state.values())))` loads its
    state dict. Smaller ones get the form in use for CIFAR: the same layers, the first two convolutions 3×3,
    the first of stride 2, and pooling over 2×2. Raises ShapeError below 16×16.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < 16:
        raise ShapeError(f"alexnet got input {input_shape}: it takes (C, H, W) with H and W of at least 16")
    channels = input_shape[0]
    if min(input_shape[1:]) >= IMAGENET_SIDE:
        first, second, pooling = Conv2d(channels, 64, 11, 4, 2), Conv2d(64, 192, 5, padding=2), (3, 2)
    else:
        first, second, pooling = Conv2d(channels, 64, 3, 2, 1), Conv2d(64, 192, 3, padding=1), (2, 2)
    layers: list[Layer] = [first, ReLU(), MaxPool2d(*pooling), second, ReLU(), MaxPool2d(*pooling)]
    for inner, outer in ((192, 384), (384, 256), (256, 256)):
        layers += [Conv2d(inner, outer, 3, padding=1), ReLU()]
    layers += [MaxPool2d(*pooling), Flatten()]
    shape = tuple(input_shape)
    for layer in layers:
        shape = layer.output_shape(shape)
    layers += [
        Dropout(dropout),
        Linear(shape[0], 4096),
        ReLU(),
        Dropout(dropout),
        Linear(4096, 4096),
        ReLU(),
        Linear(4096, classes),
    ]
    return Sequential(layers, input_shape=input_shape, **options)
