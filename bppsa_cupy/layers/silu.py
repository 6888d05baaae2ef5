"""SiLU."""

from __future__ import annotations

from bppsa_cupy.layers.activation import Activation
from bppsa_cupy.raw_kernels.elementwise import silu_forward


class SiLU(Activation):
    """y = x / (1 + e^-x) (Elfwing et al. 2018), also called swish; any shape."""

    kernel = silu_forward
