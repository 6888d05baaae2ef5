"""Training curves: how far they lie apart, noise as the yardstick of it, pictures of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bppsa_cupy.network.sequential import Sequential
from bppsa_cupy.tools.figures.picture_file import picture
from bppsa_cupy.training.steps import History

#: Losses by run.
Losses = dict[str, list[float]]


def relative_differences(losses: Sequence[float], reference: Sequence[float]) -> np.ndarray:
    """The relative difference of losses to a reference's, by step."""
    ours, theirs = np.array(losses), np.array(reference)
    return np.asarray(np.abs(ours - theirs) / np.abs(theirs))


def largest_difference(losses: Sequence[float], reference: Sequence[float]) -> float:
    """The largest of `relative_differences`."""
    return float(relative_differences(losses, reference).max())


def compare(losses: Losses, methods: Iterable[str], limit: float) -> list[dict[str, Any]]:
    """Each method's largest relative difference to `bp`'s losses, and whether it is within the limit."""
    rows = []
    for method in methods:
        largest = largest_difference(losses[method], losses["bp"])
        rows.append({"method": method, "difference": largest, "limit": limit, "agrees": largest <= limit})
    return rows


def verdict(difference: float, limit: float, agrees: bool) -> str:
    """A comparison in words."""
    return f"{difference:.2e} (limit {limit:.2e}): {'agrees' if agrees else 'DIFFERS'}"


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


def draw_differences(axes: Any, differences: np.ndarray, marker: str, **style: Any) -> None:
    """Marks by step, where there is a difference."""
    steps = np.arange(1, len(differences) + 1)
    seen = differences > 0
    axes.plot(steps[seen], differences[seen], marker, **style)


def draw_limit(axes: Any, limit: float) -> None:
    """The line that differences are held to."""
    axes.axhline(limit, color="0.2", linestyle="--", linewidth=0.8, label=f"limit {limit:.1e}")


def plot_history(history: History, path: Path, title: str) -> None:
    """Training loss by step and test loss by epoch, as a picture."""
    with picture(path, save={"dpi": 150}, figsize=(7, 4), layout="constrained") as (_, axes):
        steps = [row["step"] for row in history.rows]
        axes.plot(steps, history.losses, linewidth=0.8, label="training loss, a batch")
        evaluations = history.evaluations()
        if evaluations:
            tested = ([row[name] for row in evaluations] for name in ("step", "test_loss"))
            axes.plot(*tested, "o-", label="test loss")
        axes.set(xlabel="step", ylabel="cross entropy", title=title)
        axes.legend()
