"""Parameters of several shapes, filled, for tests of optimizers."""

import numpy as np

from bppsa_cupy.network.parameters import ParameterSet

SHAPES = {"0.weight": (3, 5), "0.bias": (3,), "2.weight": (1, 3)}


def filled(device, dtype, rng, shapes=SHAPES):
    parameters = ParameterSet(device, np.dtype(dtype), shapes)
    parameters.assign({name: rng.standard_normal(shape) for name, shape in shapes.items()})
    return parameters
