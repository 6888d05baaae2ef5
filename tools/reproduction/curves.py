"""Training curves: training by us, noise as the yardstick of rounding, and how far curves lie apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bppsa_cupy.data import Dataset
from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.training.loop import train
from bppsa_cupy.training.optimizers import Optimizer
from bppsa_cupy.training.settings import Settings

#: What PyTorch's run is called.
PYTORCH = "PyTorch"
#: Losses by run.
Losses = dict[str, list[float]]
#: The limit of differences in float64, where training has not yet made rounding visible.
FLOAT64_LIMIT = 1e-8


@dataclass
class Curve:
    """What training gave.

    losses       mean over the batch, a step
    seconds      since the start, after each step's backward pass
    evaluations  mean loss and accuracy on the test samples, in the order they were made; none without them
    backward     what ran over time, as net.last_backward says it; empty for PyTorch
    state        parameters and buffers at the end, by the network's names
    """

    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    evaluations: list[tuple[float, float]] = field(default_factory=list)
    backward: tuple[str, ...] = ()
    state: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def accuracy(self) -> float | None:
        """On the test samples at the end; None without them."""
        return self.evaluations[-1][1] if self.evaluations else None


def train_by_us(network: Sequential, dataset: Dataset, settings: Settings, optimizer: Optimizer) -> Curve:
    """Train the network; where the data has test samples, `seconds` hold their evaluations."""
    curve, hook = Curve(), settings.gradient_hook

    def timed(network: Sequential) -> None:
        curve.seconds.append(time.perf_counter() - started)
        if hook is not None:
            hook(network)

    started = time.perf_counter()
    history = train(network, dataset, optimizer, replace(settings, gradient_hook=timed))
    assert network.last_backward is not None
    curve.losses, curve.backward = history.losses.tolist(), network.last_backward.backward_ways
    curve.evaluations = [(row["test_loss"], row["test_accuracy"]) for row in history.evaluations()]
    curve.state = network.state_dict()
    return curve


def last_place_noise(seed: int) -> Callable[[Sequential], None]:
    """A gradient hook that moves every gradient element by one unit in the last place, up or down."""
    generator = np.random.default_rng(seed)

    def hook(network: Sequential) -> None:
        flat = network.gradients.flat
        values = network.device.to_host(flat)
        direction = np.where(generator.integers(0, 2, values.shape, dtype=np.int8), np.inf, -np.inf)
        moved = np.nextafter(values, direction.astype(values.dtype))
        flat[...] = network.device.asarray(np.where(values == 0, values, moved))

    return hook


def rounding_noise(seed: int, ulps: float, dtype: str) -> Callable[[Sequential], None]:
    """A gradient hook that changes every gradient element by `ulps` units in the last place, up or down."""
    generator = np.random.default_rng(seed)
    size = ulps * np.finfo(dtype).eps

    def hook(network: Sequential) -> None:
        flat = network.gradients.flat
        signs = generator.choice(np.array([-1, 1], dtype), flat.shape)
        flat *= network.device.asarray(1 + np.asarray(size, dtype) * signs, flat.dtype)

    return hook


def relative_differences(losses: Sequence[float], reference: Sequence[float]) -> np.ndarray:
    """The relative difference of losses to a reference's, by step."""
    ours, theirs = np.array(losses), np.array(reference)
    return np.asarray(np.abs(ours - theirs) / np.abs(theirs))


def largest_difference(losses: Sequence[float], reference: Sequence[float]) -> float:
    """The largest of `relative_differences`."""
    return float(relative_differences(losses, reference).max())


def compare(
    losses: Losses, methods: Iterable[str], noisy: Sequence[str], layers: int, dtype: str
) -> list[dict[str, Any]]:
    """How far each method's losses lie from `bp`'s, and whether rounding explains it.

    Each layer of a pass adds a relative error of about eps, so that losses after t steps may lie
    layers · t · eps apart, as long as training does not amplify rounding: those steps are compared that come
    before the first at which noise of one eps on every gradient moves `bp`'s own loss by more than t · eps.
    Without noisy runs all are, and FLOAT64_LIMIT is the limit.

    noisy  runs of `bp` under noise

    A row has the largest difference of all steps, `difference`; how many are compared, `steps`, the largest
    difference of these, `first_difference`, the `limit` of the last of them, and whether all keep theirs,
    `agrees`; and the largest of all steps under noise, `noise`, or None.
    """
    steps = np.arange(1, len(losses["bp"]) + 1)
    limits, noise = np.full(len(steps), FLOAT64_LIMIT), np.zeros(len(steps))
    if noisy:
        limits = layers * steps * np.finfo(dtype).eps
        noise = np.max([relative_differences(losses[run], losses["bp"]) for run in noisy], axis=0)
    amplified = np.flatnonzero(layers * noise > limits)
    count = int(amplified[0]) if amplified.size else len(steps)
    rows = []
    for method in methods:
        found = relative_differences(losses[method], losses["bp"])
        rows.append(
            {
                "method": method, "difference": float(found.max()), "steps": count,
                "first_difference": float(found[:count].max()), "limit": float(limits[count - 1]),
                "agrees": bool((found[:count] <= limits[:count]).all()),
                "noise": float(noise.max()) if noisy else None,
            }
        )  # fmt: skip
    return rows


def in_words(row: dict[str, Any]) -> str:
    """A row of `compare`."""
    told = f"in the first {row['steps']} steps {row['first_difference']:.1e} (limit {row['limit']:.1e}): "
    told += f"{'agrees' if row['agrees'] else 'DIFFERS'}; in all {row['difference']:.1e}"
    return told if row["noise"] is None else f"{told}, of bp under noise of one ulp {row['noise']:.1e}"


def nine_digits(values: Iterable[float]) -> list[float]:
    """Losses as JSON holds them."""
    return [float(f"{value:.9g}") for value in values]
