"""net.summary() counts what the network and its Jacobians hold."""

import re

import numpy as np
import pytest

import bppsa_cupy as bp

BLOCK = bp.Residual([bp.Conv2d(4, 4, 3, padding=1), bp.BatchNorm2d(4)], [])
NETWORKS = {
    "images": lambda: bp.Sequential(
        [bp.Conv2d(2, 4, 3), bp.ReLU(), BLOCK, bp.Flatten(), bp.Linear(64, 3)],
        (2, 6, 6), dtype="float64", device="host",
    ),
    "sequences": lambda: bp.Sequential(
        [bp.LSTM(3, 4, 2, bidirectional=True), bp.GRU(8, 6, outputs="last"), bp.Linear(6, 2)],
        (5, 3), dtype="float64", device="host",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_totals_are_those_of_parameters_and_records(name):
    net = NETWORKS[name]().eval()
    net(np.zeros((1, *net.input_shape), net.dtype))
    entries = sum(record.pattern.nnz for record in net.transposed_jacobians())
    *_, learned, jacobians = net.summary().splitlines()
    assert int(re.sub(",", "", learned).split()[0]) == sum(a.size for a in net.parameters.values())
    assert int(re.sub(",", "", jacobians).split()[4]) == entries


def test_open_steps_leave_their_jacobians_open():
    text = bp.Sequential([bp.RNN(3, 4)], (None, 3), device="host").summary()
    assert "T × 16" in text and "float32, input T × 3" in text and "leaves open" in text
