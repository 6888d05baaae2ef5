"""The transposed Jacobian of the shortcut that takes every stride-th pixel and pads channels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.devices import Array, Device
from bppsa_cupy.jacobians.base import TransposedJacobian


class PadShortcutJacobian(TransposedJacobian):
    """1 for each input that is taken, in the column of its output; other inputs have an empty row.

    input_shape, output_shape  (channels, height, width); `before` channels of zeros come first
    """

    depends_on = "nothing"

    def __init__(
        self, input_shape: tuple[int, ...], output_shape: tuple[int, ...], stride: int, before: int
    ) -> None:
        self.input_shape, self.output_shape = input_shape, output_shape
        self.stride, self.before = stride, before

    def make_pattern(self) -> Pattern:
        inputs, outputs = (int(np.prod(shape)) for shape in (self.input_shape, self.output_shape))
        taken = np.zeros(self.input_shape, np.int64)
        taken[:, :: self.stride, :: self.stride] = 1
        columns = np.arange(outputs).reshape(self.output_shape)
        columns = columns[self.before : self.before + self.input_shape[0]]
        indptr = np.concatenate([[0], np.cumsum(taken.reshape(-1))])
        return Pattern((inputs, outputs), indptr, columns.reshape(-1))

    def fill(
        self, device: Device, parameters: Mapping[str, Array], saved: Mapping[str, Array], values: Array
    ) -> None:
        values[...] = 1
