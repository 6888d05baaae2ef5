"""Sigmoid."""

from __future__ import annotations

from bppsa_cupy.layers.activation import Activation
from bppsa_cupy.raw_kernels.elementwise import sigmoid_forward


class Sigmoid(Activation):
    """y = 1 / (1 + exp(-x)), elementwise; any shape. As exact for large -x as for large x."""

    kernel = sigmoid_forward
