"""Models of images: LeNet-5, VGG-11, VGG-16, AlexNet and residual networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bppsa_cupy.errors import ArgumentError, ShapeError
from bppsa_cupy.layers import (
    AvgPool2d,
    BatchNorm2d,
    Conv2d,
    Dropout,
    Flatten,
    Layer,
    Linear,
    MaxPool2d,
    PadShortcut,
    ReLU,
    Residual,
)
from bppsa_cupy.network import Sequential

IMAGES = (3, 32, 32)
#: Sides from which images get AlexNet's form for ImageNet; below it, pooling would leave nothing.
IMAGENET_SIDE = 63


def lenet5(input_shape: tuple[int, ...] = IMAGES, classes: int = 10, **options: Any) -> Sequential:
    """LeNet-5: two 5×5 convolutions and three linear layers.

    Parameters
    ----------
    input_shape : tuple of int, default: (3, 32, 32)
        (C, height, width), at least 16×16.
    classes : int, default: 10
        Number of outputs.
    **options
        seed, dtype and device of `Sequential`.
    """
    _check_images("lenet5", input_shape, 16)
    layers: list[Layer] = []
    for before, channels in ((input_shape[0], 6), (6, 16)):
        layers += [Conv2d(before, channels, 5), ReLU(), MaxPool2d(2)]
    layers.append(Flatten())
    (features,) = _shape_after(layers, input_shape)
    layers += [Linear(features, 120), ReLU(), Linear(120, 84), ReLU(), Linear(84, classes)]
    return Sequential(layers, input_shape=input_shape, **options)


def vgg11(input_shape: tuple[int, ...] = IMAGES, classes: int = 10, **options: Any) -> Sequential:
    """VGG-11 (Simonyan and Zisserman 2015) for CIFAR: no dropout, one linear layer.

    Parameters
    ----------
    input_shape : tuple of int, default: (3, 32, 32)
        (C, height, width), at least 32×32.
    classes : int, default: 10
        Number of outputs.
    **options
        seed, dtype and device of `Sequential`.
    """
    _check_images("vgg11", input_shape, 32)
    layers = _vgg(input_shape[0], (1, 1, 2, 2, 2), normalized=False)
    (features,) = _shape_after(layers, input_shape)
    return Sequential([*layers, Linear(features, classes)], input_shape=input_shape, **options)


def vgg16(
    input_shape: tuple[int, ...] = IMAGES, classes: int = 10, seed: int = 0, **options: Any
) -> Sequential:
    """VGG-16 (Simonyan and Zisserman 2015) for CIFAR: batch normalization and two layers of 512 units.

    Parameters
    ----------
    input_shape : tuple of int, default: (3, 32, 32)
        (C, height, width), at least 32×32.
    classes : int, default: 10
        Number of outputs.
    seed : int, default: 0
        Seed of He's initial values.
    **options
        dtype and device of `Sequential`.
    """
    _check_images("vgg16", input_shape, 32)
    layers = _vgg(input_shape[0], (2, 2, 3, 3, 3), normalized=True)
    (features,) = _shape_after(layers, input_shape)
    for inputs in (features, 512):
        layers += [Dropout(), Linear(inputs, 512), ReLU()]
    layers.append(Linear(512, classes))
    return he_normal(Sequential(layers, input_shape=input_shape, seed=seed, **options), seed)


def _vgg(before: int, counts: Sequence[int], normalized: bool) -> list[Layer]:
    """Five groups of 3×3 convolutions, each before a pooling that halves height and width."""
    layers: list[Layer] = []
    for channels, count in zip((64, 128, 256, 512, 512), counts, strict=True):
        for _ in range(count):
            layers.append(Conv2d(before, channels, 3, padding=1))
            layers += [BatchNorm2d(channels), ReLU()] if normalized else [ReLU()]
            before = channels
        layers.append(MaxPool2d(2))
    return [*layers, Flatten()]


def alexnet(
    input_shape: tuple[int, ...] = IMAGES, classes: int = 10, dropout: float = 0.5, **options: Any
) -> Sequential:
    """AlexNet (Krizhevsky 2014).

    Parameters
    ----------
    input_shape : tuple of int, default: (3, 32, 32)
        (C, height, width), at least 16×16.
    classes : int, default: 10
        Number of outputs.
    dropout : float, default: 0.5
        Dropout probability.
    **options
        seed, dtype and device of `Sequential`.

    Notes
    -----
    For images of at least 63×63, the layers are those of torchvision's `alexnet` without its average pooling
    to 6×6, which has no effect at 224×224. `net.load_state_dict(state, by_order=True)` loads a state dict of
    torchvision. Smaller images use the form for CIFAR: 3×3 kernels in the first two convolutions, stride 2 in
    the first one, and 2×2 pooling.
    """
    _check_images("alexnet", input_shape, 16)
    channels = input_shape[0]
    if min(input_shape[1:]) >= IMAGENET_SIDE:
        first, second, pooling = Conv2d(channels, 64, 11, 4, 2), Conv2d(64, 192, 5, padding=2), (3, 2)
    else:
        first, second, pooling = Conv2d(channels, 64, 3, 2, 1), Conv2d(64, 192, 3, padding=1), (2, 2)
    layers: list[Layer] = [first, ReLU(), MaxPool2d(*pooling), second, ReLU(), MaxPool2d(*pooling)]
    for inner, outer in ((192, 384), (384, 256), (256, 256)):
        layers += [Conv2d(inner, outer, 3, padding=1), ReLU()]
    layers += [MaxPool2d(*pooling), Flatten()]
    for inputs in (*_shape_after(layers, input_shape), 4096):
        layers += [Dropout(dropout), Linear(inputs, 4096), ReLU()]
    return Sequential([*layers, Linear(4096, classes)], input_shape=input_shape, **options)


def _check_images(name: str, input_shape: tuple[int, ...], side: int) -> None:
    if len(input_shape) != 3 or min(input_shape[1:]) < side:
        raise ShapeError(f"{name} got input {input_shape}: pass (C, H, W) with H and W >= {side}")


def _shape_after(layers: list[Layer], shape: tuple[int, ...]) -> tuple[int, ...]:
    for layer in layers:
        shape = layer.output_shape(shape)
    return shape


#: Channels of the three stages; the second and the third halve height and width.
RESNET_CHANNELS = (16, 32, 64)


def resnet(
    depth: int, input_shape: tuple[int, ...] = (3, 32, 32), classes: int = 10, seed: int = 0, **options: Any
) -> Sequential:
    """ResNet for CIFAR (He et al. 2016): a convolution, three stages of blocks, and a linear layer.

    Parameters
    ----------
    depth : int
        Number of layers, 6 n + 2 for n >= 1 blocks per stage.
    input_shape : tuple of int, default: (3, 32, 32)
        (C, height, width).
    classes : int, default: 10
        Number of outputs.
    seed : int, default: 0
        Seed of He's initial values.
    **options
        dtype and device of `Sequential`.
    """
    if depth < 8 or depth % 6 != 2:
        raise ArgumentError(f"resnet got depth={depth}: pass a depth of the form 6 n + 2: 20, 32, 56, 110")
    _check_images("resnet", input_shape, 1)
    before, height, width = input_shape
    layers: list[Layer] = [*_convolution(before, RESNET_CHANNELS[0], 1), ReLU()]
    before = RESNET_CHANNELS[0]
    for channels in RESNET_CHANNELS:
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


def he_normal(network: Sequential, seed: int) -> Sequential:
    """Set weights to normal values of variance 2 / fan-in and biases to 0; return the network."""
    generator = np.random.default_rng((seed, 2015))
    for name in network.architecture.weighted:
        shape = network.parameters[name].shape
        values = generator.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))
        network.parameters[name][...] = network.device.asarray(values, dtype=network.dtype)
        bias = name.removesuffix("weight") + "bias"
        if bias in network.parameters:
            network.parameters[bias][...] = 0
    return network
