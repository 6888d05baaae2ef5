"""A layer's passes without a network: parameters go in, gradients come out, and any number of passes may be
alive.

    y, saved = bp.functional.forward(layer, parameters, x)
    gradients = bp.functional.vjp(saved, g)
    records = bp.functional.jacobians(layer, parameters, x)
"""

from bppsa_cupy.functional.passes import Gradients, Saved, forward, jacobians, vjp
from bppsa_cupy.functional.pool import release_memory

__all__ = ["Gradients", "Saved", "forward", "jacobians", "release_memory", "vjp"]
