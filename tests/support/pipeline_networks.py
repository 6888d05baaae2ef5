"""Networks and data that tests of pipelines share."""

import numpy as np
import pipeline_reference as reference

import bppsa_cupy as bp
from bppsa_cupy.data.dataset import Dataset, Split


def mlp(dtype="float64"):
    layers = []
    for before, after in zip(reference.WIDTHS, reference.WIDTHS[1:], strict=False):
        layers += [bp.Linear(before, after), bp.Tanh()]
    return bp.Sequential(layers[:-1], (reference.WIDTHS[0],), seed=3, dtype=dtype, device="host")


def data(samples, shape=(5,), classes=3, seed=0):
    rng = np.random.default_rng(seed)
    split = Split(rng.standard_normal((samples, *shape)), rng.integers(0, classes, samples), None)
    return Dataset("drawn", shape, classes, split, None, None)


def blocks():
    """A network with what cuts may meet: a block cut in its middle, statistics, draws, masks."""
    body = [
        bp.Conv2d(3, 4, 3, padding=1, bias=False), bp.BatchNorm2d(4), bp.ReLU(),
        bp.Conv2d(4, 3, 3, padding=1), bp.Dropout(0.2),
    ]  # fmt: skip
    mask = np.random.default_rng(1).integers(0, 2, (4, 12))
    layers = [
        bp.Conv2d(1, 3, 3), bp.ReLU(), bp.Residual(body, [bp.Conv2d(3, 3, 1)]), bp.Tanh(), bp.AvgPool2d(2),
        bp.Flatten(), bp.Linear(12, 4, mask=mask), bp.Dropout(0.3), bp.Linear(4, 3),
    ]  # fmt: skip
    return bp.Sequential(layers, (1, 6, 6), seed=1, dtype="float64", device="host")
