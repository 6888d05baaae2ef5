"""Gradients of long chains at spectral radius 1.5, in float32 and by every way, against float64."""

from __future__ import annotations

import numpy as np

import bppsa_cupy as bp
from measuring.errors import error_of

RADIUS = 1.5


def recurrent_matrix(hidden: int, seed: int) -> np.ndarray:
    """Random W_hh of spectral radius 1.5."""
    matrix = np.random.default_rng(seed).standard_normal((hidden, hidden))
    return (matrix * (RADIUS / np.abs(np.linalg.eigvals(matrix)).max())).astype(np.float32)


def through_time(steps: int, forward: str, method: str, dtype: str, seed: int = 0) -> tuple[np.ndarray, ...]:
    """The output of an RNN's last step, and its gradients by the input and by W_hh."""
    layers = [bp.RNN(2, 12, outputs="last", forward_method=forward)]
    net = bp.Sequential(layers, (steps, 2), seed=seed, dtype=dtype, device="host")
    net.parameters["0.weight_hh_l0"][...] = recurrent_matrix(12, seed)
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, steps, 2)).astype(np.float32).astype(dtype)
    y = np.array(net.forward(x))
    by_input = np.array(net.backward(np.ones_like(y), method, input_gradient=True))
    return y, by_input, net.gradients.to_host()["0.weight_hh_l0"]


def of_matrices(count: int, method: str, size: int = 4) -> list[np.ndarray]:
    """The scan of `count` matrices, each 1.5 times one of spectral radius 1, in float32."""
    rng = np.random.default_rng(count)
    turns, _ = np.linalg.qr(rng.standard_normal((count, size, size)))
    pattern = bp.Pattern.dense(size, size)
    steps = [(pattern, (RADIUS * turn).astype(np.float32).ravel()) for turn in turns]
    return bp.scan(np.ones(size, np.float32), steps, method, device="host")


def first_not_finite(vectors: list[np.ndarray]) -> int | None:
    """The place of the first vector that overflowed."""
    return next((place for place, vector in enumerate(vectors) if not np.isfinite(vector).all()), None)


def agreement(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest error of the vectors that both have finite, each by its own largest number."""
    pairs = [
        (a, b) for a, b in zip(found, expected, strict=True) if np.isfinite(a).all() and np.isfinite(b).all()
    ]
    return max(error_of(a, b) for a, b in pairs)
