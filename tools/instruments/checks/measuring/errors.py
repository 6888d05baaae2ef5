"""Errors of float32 against float64, in units of float32's rounding: by layer, and how they grow.

Both networks have the same parameters and inputs, which are numbers of float32, so that what differs is what
the passes round. An error is the largest difference by the largest number of the same array.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

import bppsa_cupy as bp

EPSILON = float(np.finfo(np.float32).eps)


class Errors(NamedTuple):
    """In units of EPSILON: of the output, of the gradients by the input and by any parameter (0 without)."""

    output: float
    by_input: float
    by_parameters: float


class Bound(NamedTuple):
    """What is promised of a layer of this size: Errors that random inputs do not reach."""

    layers: list[bp.Layer]
    shape: tuple[int, ...]
    units: Errors


#: One layer each, at a size that networks have.
BOUNDS: dict[str, Bound] = {
    "Linear(1024, 1024)": Bound([bp.Linear(1024, 1024)], (1024,), Errors(30, 25, 5)),
    "Conv2d(32, 32, 3)": Bound([bp.Conv2d(32, 32, 3, padding=1)], (32, 12, 12), Errors(15, 15, 12)),
    "MaxPool2d(2)": Bound([bp.MaxPool2d(2)], (8, 12, 12), Errors(0, 0, 0)),
    "AvgPool2d(3)": Bound([bp.AvgPool2d(3)], (8, 12, 12), Errors(4, 2, 0)),
    "BatchNorm2d(8)": Bound([bp.BatchNorm2d(8)], (8, 12, 12), Errors(4, 4, 4)),
    "ReLU": Bound([bp.ReLU()], (999,), Errors(0, 0, 0)),
    "Tanh": Bound([bp.Tanh()], (999,), Errors(4, 4, 0)),
    "Sigmoid": Bound([bp.Sigmoid()], (999,), Errors(4, 8, 0)),
    "GELU": Bound([bp.GELU()], (999,), Errors(4, 4, 0)),
    "RNN(64, 64), 100 steps": Bound([bp.RNN(64, 64)], (100, 64), Errors(20, 15, 20)),
    "GRU(64, 64), 100 steps": Bound([bp.GRU(64, 64)], (100, 64), Errors(15, 10, 25)),
    "LSTM(64, 64), 100 steps": Bound([bp.LSTM(64, 64)], (100, 64), Errors(15, 15, 20)),
}


def errors(layers: list[bp.Layer], shape: tuple[int, ...], method: str, seed: int, batch: int = 4) -> Errors:
    """Those of one pass each way over random numbers."""
    narrow = bp.Sequential(layers, shape, seed=seed, dtype="float32", device="host").train()
    exact = bp.Sequential(layers, shape, seed=seed, dtype="float64", device="host").train()
    exact.load_state_dict(narrow.state_dict())
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((batch, *shape)).astype(np.float32)
    outputs, inputs = [], []
    gradient = None
    for net in (narrow, exact):
        if method != "bp":
            net.use(net.plan(batch_size=batch))
        y = net.forward(x.astype(net.dtype))
        outputs.append(np.array(y))
        if gradient is None:
            gradient = rng.standard_normal(y.shape).astype(np.float32)
        inputs.append(np.array(net.backward(gradient.astype(net.dtype), method, input_gradient=True)))
    of_parameters = [
        error_of(narrow.gradients.to_host()[name], value) for name, value in exact.gradients.to_host().items()
    ]
    return Errors(error_of(*outputs), error_of(*inputs), max(of_parameters, default=0.0))


def error_of(found: np.ndarray, exact: np.ndarray) -> float:
    """The largest difference by the largest number, in units of EPSILON; inf where a number is not finite."""
    if not np.isfinite(found).all():
        return float("inf")
    largest = float(np.abs(exact).max())
    return float(np.abs(found - exact).max()) / (largest * EPSILON) if largest else 0.0


def worst(all_errors: Iterable[Errors]) -> Errors:
    """The largest of each."""
    return Errors(*map(max, zip(*all_errors, strict=True)))


# ---- growth ----


def deep(depth: int) -> tuple[list[bp.Layer], tuple[int, ...]]:
    """Linear layers of 64, with tanh between them."""
    return [layer for _ in range(depth) for layer in (bp.Linear(64, 64), bp.Tanh())], (64,)


#: What grows: a network by its size, the method, and the sizes.
GROWTH = {
    "depth, back-propagation": (deep, "bp", (1, 2, 4, 8, 16, 32, 64)),
    "depth, scan": (deep, "blelloch", (1, 2, 4, 8, 16, 32, 64)),
} | {
    f"{name}, {what}, {way}": (make, method, sizes)
    for name, layer in (("RNN", bp.RNN), ("GRU", bp.GRU), ("LSTM", bp.LSTM))
    for way, method in (("serial", "linear"), ("chunked", "blelloch"))
    for what, make, sizes in (
        ("T", lambda T, layer=layer: ([layer(20, 20)], (T, 20)), (10, 30, 100, 300, 1000, 3000)),
        ("H", lambda H, layer=layer: ([layer(20, H)], (50, 20)), (4, 16, 64, 256)),
    )
}


def power(sizes: Iterable[int], found: Iterable[float]) -> float:
    """p of the error ~ size ** p that fits best."""
    return float(np.polyfit(np.log(list(sizes)), np.log(np.maximum(list(found), 1e-3)), 1)[0])
