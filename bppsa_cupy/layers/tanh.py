"""Tanh."""

from __future__ import annotations

from bppsa_cupy.layers.activation import Activation
from bppsa_cupy.raw_kernels.elementwise import tanh_forward


class Tanh(Activation):
    """y = tanh(x), elementwise; any shape."""

    kernel = tanh_forward
