"""LeNet-5 (LeCun et al. 1998) as the paper trains it: ReLU and max-pooling, 32×32 images."""

from __future__ import annotations

from typing import Any

from bppsa_cupy.errors import ShapeError
from bppsa_cupy.layers import Conv2d, Flatten, Linear, MaxPool2d, ReLU
from bppsa_cupy.network import Sequential


def lenet5(input_shape: tuple[int, ...] = (3, 32, 32), classes: int = 10, **options: Any) -> Sequential:
    """Two 5×5 convolutions and three linear layers; `options` are Sequential's.

    Raises ShapeError for images smaller than 16×16.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < 16:
        raise ShapeError(f"lenet5 got input {input_shape}: it takes (C, H, W) with H and W of at least 16")
    channels, height, width = input_shape
    side = [((size - 4) // 2 - 4) // 2 for size in (height, width)]
    layers = [
        Conv2d(channels, 6, 5),
        ReLU(),
        MaxPool2d(2),
        Conv2d(6, 16, 5),
        ReLU(),
        MaxPool2d(2),
        Flatten(),
        Linear(16 * side[0] * side[1], 120),
        ReLU(),
        Linear(120, 84),
        ReLU(),
        Linear(84, classes),
    ]
    return Sequential(layers, input_shape=input_shape, **options)
