"""net.summary() counts what the network and its Jacobians hold, and fits 100 columns."""

import numpy as np
import pytest

import bppsa_cupy as bp
from bppsa_cupy.models import MODELS

BLOCK = bp.Residual([bp.Conv2d(4, 4, 3, padding=1), bp.BatchNorm2d(4)], [])
NETWORKS = {
    "images": lambda: bp.Sequential(
        [bp.Conv2d(2, 4, 3), bp.ReLU(), BLOCK, bp.Flatten(), bp.Linear(64, 3)], (2, 6, 6), device="host"
    ),
    "sequences": lambda: bp.Sequential(
        [bp.LSTM(3, 4, 2, bidirectional=True), bp.GRU(8, 6, heads=2, outputs="last"), bp.Linear(6, 2)],
        (5, 3), dtype="float64", device="host",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_rows_are_those_of_parameters_and_records(name):
    net = NETWORKS[name]().eval()
    summary = net.summary()
    assert summary.parameters == sum(array.size for array in net.parameters.values()) == summary.kept
    x = np.zeros((1, *net.input_shape), net.dtype)
    net(x)
    records = net.transposed_jacobians()
    assert summary.nnz == sum(record.pattern.nnz for record in records)
    patterns = {id(record.pattern): record.pattern for record in records}.values()
    rows = [row for row in summary.rows if row.nnz]
    values = sum(row.jacobians * row.nnz for row in rows) * net.dtype.itemsize
    indices = sum(row.jacobian_bytes for row in rows) - values
    assert indices >= sum(p.indices.nbytes + p.indptr.nbytes for p in patterns)
    assert summary.jacobian_bytes == values + indices
    shapes = [row.output_shape for row in summary.rows if "." not in row.name]
    assert shapes == list(net.shapes[1:])


def test_layers_inside_of_blocks_have_their_own_lines():
    net = NETWORKS["images"]()
    assert [row.name for row in net.summary().rows] == ["0", "1", "2", "2.body.0", "2.body.1", "3", "4"]
    rows = {row.name: row for row in net.summary().rows}
    assert rows["2"].parameters == rows["2.body.0"].parameters + rows["2.body.1"].parameters
    assert not rows["2.body.1"].nnz and net.eval().summary().rows[4].nnz == 4 * 16  # a barrier in training


def test_masks_are_told():
    net = bp.Sequential([bp.Linear(4, 5)], (4,), device="host")
    bp.prune(net, 0.5)
    summary = net.summary()
    assert (summary.parameters, summary.kept, summary.nnz) == (25, 15, 10)
    assert "25 parameters, 100 B, of which masks hold 10 at 0" in str(summary)


def test_open_steps_leave_their_jacobians_open():
    summary = bp.Sequential([bp.RNN(3, 4)], (None, 3), device="host").summary()
    assert (summary.nnz, summary.jacobian_bytes, summary.rows[0].nnz) == (None, None, 16)
    assert "T × 16" in str(summary) and "float32, input T × 3" in str(summary)


@pytest.mark.parametrize("model", ["lenet5", "resnet20", "lstm"])
def test_text_fits_100_columns(model):
    text = str(MODELS[model](device="host").summary())
    assert max(map(len, text.splitlines())) <= 100 and text == text.strip()


def test_long_shapes_are_cut():
    layers = [bp.ReLU()]
    for _ in range(6):
        layers = [bp.Residual(layers)]
    net = bp.Sequential(layers, (1,) * 60, device="host")
    assert max(map(len, str(net.summary()).splitlines())) <= 100


def test_text():
    net = bp.Sequential([bp.Conv2d(1, 6, 5), bp.ReLU(), bp.Flatten(), bp.Linear(3456, 10)], (1, 28, 28))
    assert str(net.summary()).splitlines() == [
        "float32, input 1 × 28 × 28",
        "layer      output       parameters  Jacobian nnz    bytes",
        "0 Conv2d   6 × 24 × 24         156        86,400   694 kB",
        "1 ReLU     6 × 24 × 24           –         3,456  41.5 kB",
        "2 Flatten  3456                  –             –        –",
        "3 Linear   10               34,570        34,560   290 kB",
        "34,726 parameters, 139 kB",
        "Jacobians of one sample: 124,416 entries, 1.03 MB",
    ]
