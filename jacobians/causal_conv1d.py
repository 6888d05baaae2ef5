"""The transposed Jacobian of a depthwise convolution over the steps that have been."""

from __future__ import annotations

import numpy as np

from bppsa_cupy.csr import Pattern
from bppsa_cupy.jacobians.weights import WeightJacobian


class CausalConv1dJacobian(WeightJacobian):
    """Of x_t of a channel the weights by which it is in y_t, y_{t+1}, …: rows by step and channel; weight
    (channels, 1, K), the last of which multiplies the present step."""

    mask = None

    def __init__(self, steps: int, channels: int, size: int) -> None:
        super().__init__()
        self.steps, self.channels, self.size = steps, channels, size

    def bytes_to_make(self) -> int:
        return 32 * self.steps * self.channels * self.size

    def make_entries(self) -> tuple[Pattern, np.ndarray]:
        step, channel, later = np.meshgrid(
            np.arange(self.steps), np.arange(self.channels), np.arange(self.size), indexing="ij"
        )
        inside = step + later < self.steps
        counts = inside.sum(axis=2).reshape(-1)
        elements = self.steps * self.channels
        pattern = Pattern(
            (elements, elements),
            np.concatenate([[0], np.cumsum(counts)]),
            ((step + later) * self.channels + channel)[inside],
        )
        return pattern, (channel * self.size + self.size - 1 - later)[inside]
