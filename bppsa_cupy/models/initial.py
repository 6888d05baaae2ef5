"""He's initial values (He et al. 2015)."""

from __future__ import annotations

import math

import numpy as np

from bppsa_cupy.network import Sequential


def he_normal(network: Sequential, seed: int) -> Sequential:
    """Set the weights of convolutions and linear layers to normal numbers of variance 2 / n, n being the
    inputs of one output, and their biases to 0; all else is left as it is. Returns the network."""
    generator = np.random.default_rng((seed, 2015))
    for name in network.architecture.maskable:
        shape = network.parameters[name].shape
        values = generator.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))
        network.parameters[name][...] = network.device.asarray(values, dtype=network.dtype)
        bias = name.removesuffix("weight") + "bias"
        if bias in network.parameters:
            network.parameters[bias][...] = 0
    return network
