"""What layers cost: multiply-adds from geometry, and measured seconds."""

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.distributed.network import STEPS, layer_multiply_adds
from bppsa_cupy.models import build_model
from bppsa_cupy.tools.models import layer_seconds


def test_multiply_adds_of_layers():
    layers = [bp.Conv2d(2, 4, 3, padding=1), bp.ReLU(), bp.Flatten(), bp.Linear(144, 5)]
    net = bp.Sequential(layers, (2, 6, 6), device="host")
    nnz = net.architecture.jacobians[0].pattern.nnz
    conv = 36 * 4 * 2 * 9  # of which padding reads zeros
    assert nnz < conv
    assert layer_multiply_adds(net.architecture).tolist() == [3 * conv, 2 * 144, 0, 3 * 144 * 5]
    gru = bp.Sequential([bp.GRU(3, 4, outputs="last"), bp.Linear(4, 2)], (None, 3), device="host")
    weights = sum(a.size for name, a in gru.parameters.items() if name.startswith("0."))
    assert layer_multiply_adds(gru.architecture).tolist() == [3 * weights * STEPS, 3 * 8]


@pytest.mark.parametrize(("model", "layers"), [("lenet5", 12), ("gru", 2)])
def test_every_layer_is_measured(model, layers):
    seconds = layer_seconds(build_model(model, dtype="float64", device="host"), 2, repeats=1)
    assert seconds.shape == (layers,) and (seconds > 0).all() and np.isfinite(seconds).all()
