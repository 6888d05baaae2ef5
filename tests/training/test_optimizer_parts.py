"""Updates by parts, as a pipeline's stages make them, and masks."""

import numpy as np
from optimizer_cases import filled

import bppsa_cupy as bp
from bppsa_cupy.devices import get_device

SHAPES = {"0.weight": (40,), "1.weight": (70,)}


def made(rng, **options):
    """SGD with momentum over two arrays, after a step; and the slices of `flat` of these."""
    device = get_device("host")
    parameters, gradients = filled(device, "float64", rng, SHAPES), filled(device, "float64", rng, SHAPES)
    optimizer = bp.SGD(parameters, **{"lr": 0.1, "momentum": 0.9, **options})
    optimizer.step(gradients)
    cut = parameters["0.weight"].size + -parameters["0.weight"].size % 8
    return optimizer, gradients, (slice(0, cut), slice(cut, parameters.flat.size))


def test_steps_by_parts_are_those_of_the_whole(rng):
    """Each part counts its steps from those of the whole; settled, the whole has made those that all have."""
    optimizer, gradients, parts = made(np.random.default_rng(1))
    reference, *_ = made(np.random.default_rng(1))
    for part in (*parts, parts[1], parts[0]):
        optimizer.step(gradients, part)
    for _ in range(2):
        reference.step(gradients)
    np.testing.assert_array_equal(optimizer.parameters["1.weight"], reference.parameters["1.weight"])
    assert optimizer.steps == 1
    optimizer.settle()
    assert optimizer.steps == 3
    optimizer.step(gradients)
    optimizer.settle()
    assert optimizer.steps == 4, "no part is left that has a count of its own"
