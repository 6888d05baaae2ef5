"""A small network and a pass through it."""

import numpy as np

import bppsa_cupy as bp


def small(seed=0, dtype="float64", **options):
    layers = [bp.Conv2d(1, 2, 3), bp.ReLU(), bp.Flatten(), bp.Linear(8, 3)]
    return bp.Sequential(layers, (1, 4, 4), seed=seed, dtype=dtype, device="host", **options)


def run_network():
    net = small()
    net.forward(np.zeros((2, 1, 4, 4)))
    return net
