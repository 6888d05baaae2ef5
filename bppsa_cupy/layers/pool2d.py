"""What pooling layers share: the geometry of windows over images."""

from __future__ import annotations

import math
from typing import Any

from bppsa_cupy.arguments import as_flag, as_pair
from bppsa_cupy.devices import Array
from bppsa_cupy.errors import ShapeError
from bppsa_cupy.geometry import Pair, Pool2dGeometry
from bppsa_cupy.layers.arguments import as_argument, check_images
from bppsa_cupy.layers.base import Layer, Shape


class Pool2d(Layer):
    """One number for each window of images (channels, height, width); arguments are PyTorch's.

    Raises ShapeError for arguments that do not fit each other.
    """

    def __init__(
        self,
        kernel_size: int | Pair,
        stride: int | Pair | None = None,
        padding: int | Pair = 0,
        dilation: int | Pair = 1,
        ceil_mode: bool = False,
    ) -> None:
        self.name = name = f"{type(self).__name__}({kernel_size})"
        self.kernel_size = as_pair(name, "kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else as_pair(name, "stride", stride, 1)
        self.padding = as_pair(name, "padding", padding, 0)
        self.dilation = as_pair(name, "dilation", dilation, 1)
        self.ceil_mode = as_flag(name, "ceil_mode", ceil_mode)
        if any(2 * p > k for p, k in zip(self.padding, self.kernel_size, strict=True)):
            raise ShapeError(
                f"{name} got padding={self.padding} and kernel_size={self.kernel_size}: padding is at most "
                "half of it"
            )

    def config(self) -> dict[str, Any]:
        return {
            "kernel_size": as_argument(self.kernel_size),
            "stride": as_argument(self.stride),
            "padding": as_argument(self.padding),
        }

    def geometry(self, input_shape: Shape) -> Pool2dGeometry:
        """The sizes for one input shape. Raises ShapeError where the input does not fit."""
        check_images(self.name, input_shape)
        channels, height, width = input_shape
        return Pool2dGeometry(
            channels,
            (height, width),
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
        )

    def scalars(self, geometry: Pool2dGeometry, images: Array) -> tuple[int, ...]:
        """The number of planes of `images`, (B, channels, ...), and what else the layer's kernels take."""
        return math.prod(images.shape[:2]), *geometry.scalars()

    def output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], *self.geometry(input_shape).out_size)
