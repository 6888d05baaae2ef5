"""What a training step costs by layer: multiply-adds, or measured seconds."""

from __future__ import annotations

import math
import time
from functools import partial

import numpy as np

from bppsa_cupy.network.architecture import Architecture
from bppsa_cupy.network.sequential import Sequential

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


def layer_seconds(network: Sequential, batch: int, repeats: int = 5) -> np.ndarray:
    """(layers,) seconds of a training step on this process, measured: the median of some repeats per layer.
    A forward pass counts as long as the VJP."""
    shape = (batch, *(STEPS if size is None else size for size in network.input_shape))
    y = network.forward(network.device.zeros(shape, network.dtype))
    network.backward(network.device.xp.ones_like(y), "bp")
    current, seconds = network.last_pass, np.zeros(len(network))
    assert current is not None
    for index, (layer, ctx) in enumerate(zip(network.layers, current.layers, strict=True)):
        gradient = current.output_gradients[index]
        works = [partial(layer.vjp, ctx, gradient)] * 2
        if layer.parameter_shapes():
            works.append(partial(layer.parameter_gradients, ctx, gradient))
        for work in works:
            times = []
            for _ in range(repeats):
                network.device.synchronize()
                start = time.perf_counter()
                work()
                network.device.synchronize()
                times.append(time.perf_counter() - start)
            seconds[index] += np.median(times)
    return seconds
