"""Passes of a layer without a network: parameters go in, gradients come out.

Examples
--------
>>> import numpy as np, bppsa_cupy as bp
>>> layer, x = bp.ReLU(), np.array([[1.0, -1.0]])
>>> y, saved = bp.functional.forward(layer, {}, x)
>>> gradients = bp.functional.vjp(saved, np.ones_like(y))
>>> records = bp.functional.jacobians(layer, {}, x)
"""

from bppsa_cupy.functional.passes import Gradients, Saved, forward, jacobians, release_memory, vjp

__all__ = ["Gradients", "Saved", "forward", "jacobians", "release_memory", "vjp"]
