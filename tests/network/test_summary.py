"""net.summary() counts what the network and its Jacobians hold."""

import numpy as np
import pytest

import bppsa_cupy as bp

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
    assert summary.parameters == sum(array.size for array in net.parameters.values())
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


def test_open_steps_leave_their_jacobians_open():
    summary = bp.Sequential([bp.RNN(3, 4)], (None, 3), device="host").summary()
    assert (summary.nnz, summary.jacobian_bytes, summary.rows[0].nnz) == (None, None, 16)
    assert "T × 16" in str(summary) and "float32, input T × 3" in str(summary)
