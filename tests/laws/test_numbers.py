"""Promises of docs/explanation/numerics.md: float32 error bounds, and bits for any number of threads."""

from __future__ import annotations

import hashlib

import numba
import numpy as np
import pytest

import bppsa_cupy as bp

pytestmark = pytest.mark.long

EPSILON = float(np.finfo(np.float32).eps)
#: Layers, input shape, and bounds on errors of output, input gradient and parameter gradients, in EPSILON.
BOUNDS = {
    "Linear": (lambda: [bp.Linear(1024, 1024)], (1024,), (30, 25, 5)),
    "Conv2d": (lambda: [bp.Conv2d(32, 32, 3, padding=1)], (32, 12, 12), (15, 15, 12)),
    "MaxPool2d": (lambda: [bp.MaxPool2d(2)], (8, 12, 12), (0, 0, 0)),
    "AvgPool2d": (lambda: [bp.AvgPool2d(3)], (8, 12, 12), (4, 2, 0)),
    "BatchNorm2d": (lambda: [bp.BatchNorm2d(8)], (8, 12, 12), (4, 4, 4)),
    "ReLU": (lambda: [bp.ReLU()], (999,), (0, 0, 0)),
    "Tanh": (lambda: [bp.Tanh()], (999,), (4, 4, 0)),
    "Sigmoid": (lambda: [bp.Sigmoid()], (999,), (4, 8, 0)),
    "GELU": (lambda: [bp.GELU()], (999,), (4, 4, 0)),
    "RNN": (lambda: [bp.RNN(64, 64)], (100, 64), (20, 15, 20)),
    "GRU": (lambda: [bp.GRU(64, 64)], (100, 64), (15, 10, 25)),
    "LSTM": (lambda: [bp.LSTM(64, 64)], (100, 64), (15, 15, 20)),
    "GRU, 600 steps": (lambda: [bp.GRU(20, 20)], (600, 20), (60, 60, 60)),
    "GRU, 600 steps, scan": (lambda: [bp.GRU(20, 20)], (600, 20), (60, 60, 60)),
}
NETWORKS = {
    "convolutions": (
        lambda: [
            *(bp.Conv2d(3, 8, 3, padding=1), bp.BatchNorm2d(8), bp.ReLU(), bp.MaxPool2d(2)),
            *(bp.Conv2d(8, 8, 3), bp.Tanh(), bp.AvgPool2d(2), bp.Flatten(), bp.Linear(32, 10)),
        ],
        (3, 12, 12),
    ),
    "GRU": (lambda: [bp.GRU(5, 20, outputs="last"), bp.Linear(20, 10)], (60, 5)),
    "LSTM": (lambda: [bp.LSTM(5, 33, num_layers=2, outputs="last"), bp.Linear(33, 10)], (60, 5)),
}


def error_of(actual: np.ndarray, exact: np.ndarray) -> float:
    """The largest difference over the largest number, in EPSILON; infinity where a number is not finite."""
    largest = float(np.abs(exact).max())
    if not np.isfinite(actual).all():
        return float("inf")
    return float(np.abs(actual - exact).max()) / (largest * EPSILON) if largest else 0.0


@pytest.mark.parametrize("name", BOUNDS)
def test_float32_errors_stay_within_their_bounds(name: str) -> None:
    """The same float32 numbers go through a float32 and a float64 network."""
    make, shape, bounds = BOUNDS[name]
    narrow, exact = (bp.Sequential(make(), shape, seed=101, dtype=d, device="host") for d in ("f4", "f8"))
    exact.load_state_dict(narrow.state_dict())
    rng = np.random.default_rng(101)
    x = rng.standard_normal((4, *shape)).astype(np.float32)
    gradient = rng.standard_normal((4, *narrow.output_shape)).astype(np.float32)
    results = []
    for net in (narrow.train(), exact.train()):
        method = "blelloch" if "scan" in name else "bp"
        if method != "bp":
            net.use(net.plan(batch_size=4))
        y = np.array(net.forward(x.astype(net.dtype)))
        dx = np.array(net.backward(gradient.astype(net.dtype), method, input_gradient=True))
        results.append((y, dx, net.gradients.to_host()))
    (y, dx, narrow_gradients), (exact_y, exact_dx, gradients) = results
    assert error_of(y, exact_y) <= bounds[0]
    assert error_of(dx, exact_dx) <= bounds[1]
    for parameter, values in gradients.items():
        assert error_of(narrow_gradients[parameter], values) <= bounds[2], parameter


def digest_of_training(network: str, method: str) -> str:
    """A digest of the parameters and gradients after two steps of Adam."""
    make, shape = NETWORKS[network]
    net = bp.Sequential(make(), shape, seed=0, device="host").train()
    if method != "bp":
        net.use(net.plan(batch_size=37, workers=2))
    optimizer, rng = bp.Adam(net.parameters), np.random.default_rng(1)
    for _ in range(2):
        x, labels = rng.standard_normal((37, *shape)).astype(np.float32), rng.integers(0, 10, 37)
        _, gradient = bp.cross_entropy(net.forward(x), labels)
        net.backward(gradient, method)
        optimizer.step(net.gradients)
    state = hashlib.sha256()
    for arrays in (net.state_dict(), net.gradients.to_host()):
        for name, array in arrays.items():
            state.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("method", ["bp", "linear"])
def test_the_number_of_threads_changes_no_bit(network: str, method: str) -> None:
    most = numba.config.NUMBA_NUM_THREADS
    if most < 2:
        pytest.skip("Numba has one thread here")
    digests = set()
    for count in (1, most):
        numba.set_num_threads(count)
        try:
            digests.add(digest_of_training(network, method))
        finally:
            numba.set_num_threads(most)
    assert len(digests) == 1
