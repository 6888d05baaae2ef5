"""The multiply-adds of a training step by layer."""

from __future__ import annotations

import math

import numpy as np

from bppsa_cupy.network.architecture import Architecture

#: The length of sequences where a network leaves it open.
STEPS = 100


def layer_multiply_adds(architecture: Architecture) -> np.ndarray:
    """(layers,) multiply-adds of a training step of one sample: a forward pass and a VJP take as many as the
    Jacobian has entries, and so do the gradients of a layer with parameters."""
    counts = np.zeros(len(architecture.layers))
    for index, layer in enumerate(architecture.layers):
        weights = sum(map(math.prod, layer.parameter_shapes().values()))
        shape = tuple(STEPS if size is None else size for size in architecture.shapes[index])
        jacobian = architecture.jacobians[index]
        terms = layer.vjp_multiply_adds(shape)
        if terms is None:
            # A layer without a Jacobian is recurrent, and uses its weights at each step, or reshapes.
            terms = jacobian.pattern.nnz if jacobian is not None else weights * shape[0]
        counts[index] = terms * (3 if weights else 2)
    return counts
